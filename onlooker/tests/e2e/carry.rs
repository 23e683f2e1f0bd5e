//! Counts carried from a folder to a cluster and back, and a single machine that moves while it counts.

use crate::support::{Http, LONG, Ledger, Read as Record, Role, System, Wishes, text, view};
use flate2::read::DeflateDecoder;
use onlooker_event::{CountKey, DayNumber, ItemKey, Scope};
use onlooker_sketch::Sketch;
use onlooker_testkit::{ports, wait_until, wait_until_async};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A process that is everything at once, with the same key and sites as the cluster.
struct Home {
    role: Role,
    url: String,
    dir: PathBuf,
}

impl Home {
    fn start(system: &System, name: &str) -> Self {
        let dir = system.folder.path().join(name);
        let port = ports::free_port().unwrap();
        let listen = format!("collector.listen=127.0.0.1:{port}");
        let args = ["--dir", dir.to_str().unwrap(), "--set", &listen, "--set", "flusher.interval_ms=1000"];
        let role = Role::launch(system, "run", &args);
        role.wait_ready();
        Self { role, url: format!("http://127.0.0.1:{port}"), dir }
    }

    fn http(&self) -> Http {
        Http::new(self.url.clone(), self.url.clone())
    }

    fn dir(&self) -> &str {
        self.dir.to_str().unwrap()
    }
}

fn succeed(system: &System, args: &[&str]) -> String {
    let output = system.onlooker(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

fn fail(system: &System, args: &[&str]) -> String {
    let output = system.onlooker(args);
    assert!(!output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

/// Waits until these items have so many views and about so many viewers.
async fn wait_counts(http: &Http, expected: &BTreeMap<String, u64>) {
    let items: Vec<&str> = expected.keys().map(String::as_str).collect();
    wait_until_async("counts to be what they should be", LONG, async || {
        let counts = http.counts(&items).await;
        counts.iter().all(|count| {
            count["status"] == "ok" && count["views"] == expected[count["item"].as_str().unwrap()]
        })
    })
    .await
    .unwrap();
}

/// Rows by key, read as docs/export-format.md says.
fn rows_of(file: &Path) -> BTreeMap<String, (Option<u64>, Option<Vec<u8>>)> {
    let bytes = std::fs::read(file).unwrap();
    assert_eq!(&bytes[..12], b"\x89OLX\r\n\x1a\n\x01\0\0\0");
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut rows) = (12, BTreeMap::new());
    while at < bytes.len() {
        let (kind, codec, stored) = (bytes[at], bytes[at + 1], &bytes[at + 20..at + 20 + u32_at(at + 12)]);
        let mut content = Vec::new();
        match codec {
            0 => content.extend_from_slice(stored),
            _ => _ = DeflateDecoder::new(stored).read_to_end(&mut content).unwrap(),
        }
        at += 20 + stored.len();
        let mut rest = &content[..];
        while kind == 2 && !rest.is_empty() {
            let mut take = |length: usize| {
                let (part, more) = rest.split_at(length);
                rest = more;
                part
            };
            let length = u16::from_le_bytes(take(2).try_into().unwrap());
            let key = String::from_utf8(take(length.into()).to_vec()).unwrap();
            let there = take(1)[0];
            let views = (there & 1 != 0).then(|| u64::from_le_bytes(take(8).try_into().unwrap()));
            let sketch = (there & 2 != 0).then(|| {
                let length = u32::from_le_bytes(take(4).try_into().unwrap());
                take(length as usize).to_vec()
            });
            assert!(rows.insert(key, (views, sketch)).is_none());
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_move_from_a_folder_to_a_cluster_and_back() {
    let system = System::start(Wishes::default());
    let path = |name: &str| system.folder.path().join(name).display().to_string();
    let home = Home::start(&system, "home");
    let http = home.http();
    // Two items with many viewers, one of them dense; one with one.
    let views: Vec<Value> = (0..6_000).map(|n| view("/many", &format!("v{n}"))).collect();
    for views in views.chunks(1_000) {
        http.send(views).await;
    }
    http.send(&[view("/one", "ada"), view("/some", "ada"), view("/some", "bob")]).await;
    let mut expected: BTreeMap<String, u64> =
        [("/many", 6_000), ("/one", 1), ("/some", 2)].map(|(item, n)| (item.to_owned(), n)).into();
    wait_counts(&http, &expected).await;

    // Of the running process: everything that was counted, archived or not.
    succeed(&system, &["export", &path("running"), "--dir", home.dir()]);
    let running = rows_of(Path::new(&path("running")));
    assert_eq!(running["*:blog:/many"].0, Some(6_000));
    assert_eq!(running.len(), 6, "{:?}", running.keys());
    let again = fail(&system, &["export", &path("running"), "--dir", home.dir()]);
    assert!(again.contains("is there already"), "{again}");
    let refused = fail(&system, &["restore", &path("running"), "--dir", home.dir()]);
    assert!(refused.contains("stop it first"), "{refused}");
    assert!(home.role.stop(LONG).success());
    succeed(&system, &["export", &path("closed"), "--dir", home.dir()]);
    let closed = rows_of(Path::new(&path("closed")));
    assert_eq!(closed, running);
    let counted = fail(&system, &["restore", &path("running"), "--dir", home.dir()]);
    assert!(counted.contains("has taken views already"), "{counted}");

    // Into the cluster: byte for byte, at offset 0, and once more without effect.
    succeed(&system, &["restore", &path("running"), "--cluster"]);
    let archived = system.archive().await.rows().await;
    for (key, (views, sketch)) in &running {
        let row = &archived[key];
        assert_eq!(row.views, views.map(|views| (i64::try_from(views).unwrap(), 0)));
        assert_eq!(row.blob, sketch.clone().map(|sketch| (sketch, 0)));
    }
    let twice = succeed(&system, &["restore", &path("running"), "--cluster"]);
    assert!(twice.contains("restored 0 rows and 0 claims"), "{twice}");

    // Whoever was seen a moment ago does not count again; others count on top.
    let roles = system.all_roles();
    let http = system.http();
    wait_counts(&http, &expected).await;
    http.send(&[view("/one", "ada"), view("/one", "bob"), view("/many", "v17"), view("/new", "ada")]).await;
    expected.extend([("/one".to_owned(), 2), ("/new".to_owned(), 1)]);
    wait_counts(&http, &expected).await;
    Ledger::check_counts(&system).await;
    let late = fail(&system, &["restore", &path("running"), "--cluster"]);
    assert!(late.contains("a counter has begun to work"), "{late}");

    // Of the running cluster, and into a folder.
    succeed(&system, &["export", &path("cluster"), "--cluster"]);
    let exported = rows_of(Path::new(&path("cluster")));
    let views = |item: &str| exported[&format!("*:blog:{item}")].0;
    assert_eq!([views("/many"), views("/one"), views("/new")], [Some(6_000), Some(2), Some(1)]);
    drop(roles);
    succeed(&system, &["restore", &path("cluster"), "--dir", &path("back")]);
    succeed(&system, &["export", &path("again"), "--dir", &path("back")]);
    assert_eq!(rows_of(Path::new(&path("again"))), exported);
    let back = Home::start(&system, "back");
    wait_counts(&back.http(), &expected).await;
    back.http().send(&[view("/new", "ada"), view("/new", "bob"), view("/many", "v5999")]).await;
    expected.insert("/new".to_owned(), 2);
    wait_counts(&back.http(), &expected).await;
}

/// For each partition: below which offset all counted views are in the file.
fn up_to(file: &Path) -> Vec<i64> {
    let bytes = std::fs::read(file).unwrap();
    let mut content = Vec::new();
    let stored = u32::from_le_bytes(bytes[24..28].try_into().unwrap()) as usize;
    match bytes[13] {
        0 => content.extend_from_slice(&bytes[32..32 + stored]),
        _ => _ = DeflateDecoder::new(&bytes[32..32 + stored]).read_to_end(&mut content).unwrap(),
    }
    let about: Value = serde_json::from_slice(&content).unwrap();
    serde_json::from_value(about["up_to"].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_exact_while_views_come_in() {
    // The archive is seconds behind, and not by the same for each row.
    let config = "[flusher]\ninterval_ms = 3000".to_owned();
    let system = System::start(Wishes { config, ..Wishes::default() });
    let _roles = system.all_roles();
    let load = Load::start(&system.collector_url());
    let mut files = Vec::new();
    for n in 0..4 {
        load.wait_for(300);
        let file = system.folder.path().join(format!("live{n}"));
        let path = file.display().to_string();
        tokio::task::block_in_place(|| succeed(&system, &["export", &path, "--cluster"]));
        files.push(file);
    }
    load.end().await;
    let counted = system.log().counted();
    let mut before = 0;
    for file in files {
        let (rows, up_to) = (rows_of(&file), up_to(&file));
        let mut expected: BTreeMap<String, (u64, Sketch)> = BTreeMap::new();
        let is_in = |read: &Record| read.offset < up_to[usize::try_from(read.partition).unwrap()];
        for (_, view) in counted.iter().filter(|(read, _)| is_in(read)) {
            let item = ItemKey::new(&view.site, &view.item);
            for scope in [Scope::All, Scope::Day(DayNumber::of_ms(view.event_ms))] {
                let key = CountKey::new(scope, item.as_bytes());
                let key = String::from_utf8(key.as_bytes().to_vec()).unwrap();
                let (n, sketch) = expected.entry(key).or_insert_with(|| (0, Sketch::new()));
                *n += 1;
                sketch.add(&view.viewer.0);
            }
        }
        assert!(rows.keys().eq(expected.keys()), "{:?} and {:?}", rows.keys(), expected.keys());
        for (key, (n, sketch)) in &expected {
            let (views, bytes) = &rows[key];
            assert_eq!(*views, Some(*n), "{key}");
            let found = Sketch::from_redis(bytes.as_deref().unwrap()).unwrap();
            assert!(found.register_eq(sketch), "{key}");
        }
        let all = expected.iter().filter(|(key, _)| key.starts_with('*')).map(|(_, (n, _))| n).sum();
        assert!(all > before, "nothing was counted between two exports");
        before = all;
    }
}

/// Clients that send until they are told to stop: every view is sent until it was answered 202.
struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    clients: Vec<tokio::task::JoinHandle<Vec<(String, String)>>>,
}

impl Load {
    fn start(url: &str) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = |client: usize| {
            let (stop, sent, url) = (Arc::clone(&stop), Arc::clone(&sent), url.to_owned());
            tokio::spawn(async move {
                let http = Http::new(url.clone(), url);
                let mut acknowledged = Vec::new();
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // Every viewer looks twice, and some of the first hour's viewers come back.
                    let viewer = match n % 5 {
                        4 => format!("early{}", n % 50),
                        _ => format!("c{client}-{}", n / 2),
                    };
                    let item = format!("/live{}", n / 2 % 7);
                    let mut one = view(&item, &viewer);
                    one["id"] = json!(format!("{client}-{n}"));
                    while !matches!(http.try_send(&json!([one])).await, Some((202, _))) {
                        tokio::task::yield_now().await;
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                    acknowledged.push((item, viewer));
                }
                acknowledged
            })
        };
        let clients = (0..4).map(client).collect();
        Self { stop, sent, clients }
    }

    /// Waits until so many more were acknowledged.
    fn wait_for(&self, more: usize) {
        let target = self.sent.load(Ordering::Relaxed) + more;
        wait_until("more views to be taken", LONG, || self.sent.load(Ordering::Relaxed) >= target).unwrap();
    }

    async fn end(self) -> BTreeSet<(String, String)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = BTreeSet::new();
        for client in self.clients {
            all.extend(client.await.unwrap());
        }
        all
    }
}

/// All within one window: each viewer counts once on each item.
fn expected(pairs: &BTreeSet<(String, String)>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (item, _) in pairs {
        *counts.entry(item.clone()).or_insert(0) += 1;
    }
    counts
}

async fn early(http: &Http, pairs: &mut BTreeSet<(String, String)>) {
    for item in 0..7 {
        let item = format!("/live{item}");
        let viewers: Vec<String> = (0..50).map(|n| format!("early{n}")).collect();
        let views: Vec<Value> = viewers.iter().map(|viewer| view(&item, viewer)).collect();
        http.send(&views).await;
        pairs.extend(viewers.into_iter().map(|viewer| (item.clone(), viewer)));
    }
}

/// Counts are exact, sketches are those of the log register for register, and no view was counted twice.
async fn settle(system: &System, pairs: &BTreeSet<(String, String)>) {
    wait_counts(&system.http(), &expected(pairs)).await;
    Ledger::check_counts(system).await;
    let counted = system.log().counted();
    let different: BTreeSet<_> = counted.iter().map(|(_, c)| (c.viewer.0, c.item.to_string())).collect();
    assert_eq!(different.len(), counted.len(), "a viewer counted twice");
    assert_eq!(counted.len(), pairs.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_machine_moves_to_a_cluster_under_load() {
    let system = System::start(Wishes::default());
    let config = system.config_path().display().to_string();
    let home = Home::start(&system, "home");
    let mut pairs = BTreeSet::new();
    early(&home.http(), &mut pairs).await;
    wait_counts(&home.http(), &expected(&pairs)).await;

    // A cluster that would count everybody anew is refused before anything is changed.
    let other = std::fs::read_to_string(&config).unwrap().replace("0001020304", "ff01020304");
    let other_path = system.folder.path().join("other.toml");
    std::fs::write(&other_path, other.replace("[sites.blog]", "[sites.shop]")).unwrap();
    let refused = fail(&system, &["promote", "--to", other_path.to_str().unwrap(), "--dir", home.dir()]);
    assert!(
        refused.contains("[identity] differs") && refused.contains("[sites.blog] is missing"),
        "{refused}"
    );

    let load = Load::start(&home.url);
    load.wait_for(200);
    let said =
        tokio::task::block_in_place(|| succeed(&system, &["promote", "--to", &config, "--dir", home.dir()]));
    assert!(said.contains("the cluster's filters may begin"), "{said}");
    load.wait_for(200);
    let roles: Vec<Role> =
        ["filter", "counter", "flusher", "counts-api", "collector"].map(|role| system.role(role)).into();
    load.wait_for(200);
    pairs.extend(load.end().await);
    // Known on both sides of the move, by either collector.
    early(&home.http(), &mut pairs).await;
    early(&system.http(), &mut pairs).await;
    settle(&system, &pairs).await;
    // Pages that still ask the old address get the cluster's counts.
    wait_counts(&home.http(), &expected(&pairs)).await;

    let again = succeed(&system, &["promote", "--to", &config, "--dir", home.dir()]);
    assert!(again.contains("was moved to the cluster"), "{again}");
    assert!(home.role.stop(LONG).success());
    let refused = fail(&system, &["run", "--dir", home.dir(), "--set", "collector.listen=127.0.0.1:0"]);
    assert!(refused.contains("was moved to the cluster"), "{refused}");
    drop(roles);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_goes_on_after_the_process_was_killed_in_its_middle() {
    let system = System::start(Wishes::default());
    let config = system.config_path().display().to_string();
    let home = Home::start(&system, "home");
    let mut pairs = BTreeSet::new();
    early(&home.http(), &mut pairs).await;
    let mut promoting = Command::new(env!("CARGO_BIN_EXE_onlooker"))
        .args(["promote", "--to", &config, "--dir", home.dir()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(promoting.stderr.take().unwrap()).lines().map(Result::unwrap);
    let switched = lines.by_ref().find(|line| line.contains("views go to the cluster"));
    assert!(switched.is_some(), "it did not get so far");
    home.role.kill();
    let _ = lines.count();
    promoting.wait().unwrap();

    let refused = fail(&system, &["run", "--dir", home.dir(), "--set", "collector.listen=127.0.0.1:0"]);
    let known =
        refused.contains("is on its way to the cluster") || refused.contains("was moved to the cluster");
    assert!(known, "{refused}");
    let said = succeed(&system, &["promote", "--to", &config, "--dir", home.dir()]);
    assert!(said.contains("moved. Start the cluster's rooms"), "{said}");
    let _roles = system.all_roles();
    early(&system.http(), &mut pairs).await;
    system.http().send(&[view("/after", "ada")]).await;
    pairs.insert(("/after".to_owned(), "ada".to_owned()));
    settle(&system, &pairs).await;
}
