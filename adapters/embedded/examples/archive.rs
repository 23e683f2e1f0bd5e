//! What the archive costs when many large sketches are written again and again: CPU a sketch, and the file's length.
//!
//! ```text
//! cargo run --release -p onlooker-embedded --example archive
//! ```
#![expect(clippy::unwrap_used, reason = "a measurement stops where something is wrong")]

use onlooker_embedded::store::RedbArchive;
use onlooker_event::{CountKey, ItemId, ItemKey, Scope, SiteId};
use onlooker_ports::{Archive, ArchiveCell};
use std::time::{Duration, Instant};

const SKETCHES: usize = 20_000;
const SKETCH_BYTES: usize = 12_304;
const ROUNDS: i64 = 4;

/// CPU time of this process.
#[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "the clock never runs back")]
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value of the type that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn key(n: usize) -> CountKey {
    let item = ItemKey::new(&SiteId::new("blog").unwrap(), &ItemId::new(&format!("article-{n}")).unwrap());
    CountKey::new(Scope::All, item.as_bytes())
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("archive.redb");
    let archive = RedbArchive::open(&path, "1", 64 << 20).unwrap();
    let keys: Vec<_> = (0..SKETCHES).map(key).collect();
    let net_mb = (SKETCHES * SKETCH_BYTES) as f64 / 1e6;
    println!("{SKETCHES} sketches of {SKETCH_BYTES} bytes, {net_mb:.0} MB; written again in each round");
    println!("{:>6} {:>14} {:>12} {:>10} {:>8}", "page", "CPU a sketch", "wall a round", "file", "of net");
    let mut t = 0i64;
    for page in [256, 2_048] {
        for _ in 0..ROUNDS {
            t += 1;
            let (begun, spent) = (Instant::now(), cpu());
            for keys in keys.chunks(page) {
                let cells: Vec<_> = keys
                    .iter()
                    .map(|key| {
                        let mut bytes = vec![0x5a; SKETCH_BYTES];
                        bytes[16..24].copy_from_slice(&t.to_le_bytes());
                        ArchiveCell::Sketch { key: key.clone(), bytes: bytes.into(), t }
                    })
                    .collect();
                assert!(archive.write(&cells).await.iter().all(Result::is_ok));
            }
            let each = (cpu() - spent).as_secs_f64() * 1e6 / SKETCHES as f64;
            let file_mb = std::fs::metadata(&path).unwrap().len() as f64 / 1e6;
            let (wall, share) = (begun.elapsed().as_secs_f64(), file_mb / net_mb);
            println!("{page:>6} {each:>11.1} µs {wall:>10.1} s {file_mb:>7.0} MB {share:>8.2}");
        }
    }
}
