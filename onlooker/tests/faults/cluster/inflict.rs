//! How each fault is done, and undone.

use super::damage::damage_archive;
use super::field::{Field, ITEMS};
use super::kinds::Kind::{self, *};
use super::load::wire;
use crate::schedule::{Planned, STEPS_S, Timeline};
use crate::support::{LONG, RedisEyes};
use onlooker_testkit::Managed;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

impl Field {
    /// Does it, and undoes what can be undone.
    pub(super) async fn inflict(&self, fault: &Planned<Kind>, timeline: &Timeline) {
        let Planned { kind, lasts, pick, .. } = fault.clone();
        match kind {
            Kill | Stop | Zombie | Guest => self.disturb_process(kind, lasts, pick, timeline).await,
            ServerKill | ServerPause | BrokerKill | BrokerPause => {
                self.disturb_server(kind, lasts, pick, timeline).await;
            }
            DedupFlush | CountersFlush => {
                timeline.note(format!("{kind:?}"));
                let eyes = self.eyes(kind == DedupFlush);
                tokio::task::block_in_place(|| eyes.flush_all());
            }
            DedupFailover | CountersFailover => self.fail_over(kind == DedupFailover, lasts, timeline).await,
            Eviction => {
                let eyes = self.system.counters_eyes();
                let used = used(&eyes.command(&["INFO", "memory"]));
                timeline.note(format!("maxmemory {used}, which is what it uses"));
                eyes.command(&["CONFIG", "SET", "maxmemory", &used.to_string()]);
                sleep(lasts).await;
                eyes.command(&["CONFIG", "SET", "maxmemory", "256mb"]);
                timeline.note("maxmemory 256mb");
            }
            Cut | Slow | Flip => {
                let (name, proxy) = self.wire(pick);
                timeline.note(format!("{kind:?} the wire to {name}"));
                match kind {
                    Cut => proxy.cut(),
                    Flip => proxy.flip(),
                    _ => proxy.delay(Duration::from_millis(5 + pick as u64 % 200)),
                }
                sleep(lasts).await;
                proxy.mend();
                timeline.note(format!(
                    "the wire to {name} is mended, {} bits were flipped so far",
                    proxy.flipped()
                ));
            }
            ClockStep => self.step_clocks(lasts, pick, timeline).await,
            Poison => self.poison(pick, timeline),
            Corruption => {
                let eyes = self.system.counters_eyes();
                let keys = tokio::task::block_in_place(|| eyes.keys());
                let sketches: Vec<&String> = keys.iter().filter(|key| key.starts_with("sketch:")).collect();
                if let Some(key) = sketches.get(pick % sketches.len().max(1)) {
                    timeline.note(format!("no sketch in {key}"));
                    eyes.command(&["SET", key, "no sketch at all"]);
                    sleep(lasts).await;
                }
                timeline.note("FLUSHALL of the counters");
                tokio::task::block_in_place(|| eyes.flush_all());
            }
            Repeats => {
                timeline.note("repeats");
                let http = self.system.http();
                let view = |n: usize| {
                    wire(&format!("item {}", n % ITEMS), &format!("viewer {n}"), &format!("again-{n}"))
                };
                let views: Vec<Value> = (0..500).map(view).collect();
                for _ in 0..2 {
                    // Nobody may be there to take them.
                    let _ = http.try_send(&json!(views)).await;
                }
            }
            ArchiveDamage => damage_archive(self, pick, timeline).await,
            TopicAnew | MorePartitions => unreachable!("such a fault ends a field"),
        }
    }

    async fn disturb_process(&self, kind: Kind, lasts: Duration, pick: usize, timeline: &Timeline) {
        let role = self.role(pick);
        match kind {
            Kill => {
                timeline.note(format!("kill -9 {}", role.name()));
                role.restart();
            }
            Stop => {
                timeline.note(format!("SIGTERM {}", role.name()));
                tokio::task::block_in_place(|| role.stop(LONG));
                timeline.note("it has ended, and starts again");
                role.restart();
            }
            Zombie => {
                let role = self.owner(pick);
                timeline.note(format!("SIGSTOP {}", role.name()));
                role.signal(libc::SIGSTOP);
                sleep(Duration::from_millis(6_500) + lasts).await;
                timeline.note("SIGCONT");
                role.signal(libc::SIGCONT);
            }
            _ => {
                let name = ["filter", "counter", "flusher"][pick % 3];
                timeline.note(format!("one more {name}"));
                let guest = self.launch(name);
                sleep(Duration::from_secs(1) + lasts).await;
                timeline.note("it goes");
                if pick.is_multiple_of(2) {
                    guest.kill()
                } else {
                    let _ = tokio::task::block_in_place(|| guest.stop(LONG));
                }
            }
        }
    }

    async fn disturb_server(&self, kind: Kind, lasts: Duration, pick: usize, timeline: &Timeline) {
        let (name, server) = match kind {
            BrokerKill | BrokerPause => {
                let (id, broker) = self.broker(pick);
                (format!("broker {id}"), broker)
            }
            _ => {
                let (name, server) = self.server(pick);
                (name.to_owned(), server)
            }
        };
        if matches!(kind, ServerKill | BrokerKill) {
            timeline.note(format!("kill -9 {name}"));
            server.kill().unwrap();
            sleep(lasts).await;
            tokio::task::block_in_place(|| server.restart()).unwrap();
            timeline.note(format!("{name} is back"));
        } else {
            timeline.note(format!("SIGSTOP {name}"));
            server.pause().unwrap();
            // A broker is given up after a second.
            let given_up = if kind == BrokerPause { Duration::from_secs(2) } else { Duration::ZERO };
            sleep(given_up + lasts * 2).await;
            server.resume().unwrap();
            timeline.note(format!("SIGCONT {name}"));
        }
    }

    async fn fail_over(&self, dedup: bool, lasts: Duration, timeline: &Timeline) {
        let server: &Managed = if dedup { &self.system.dedup } else { &self.system.counters };
        let name = if dedup { "dedup" } else { "counters" };
        timeline.note(format!("the state of {name} is kept"));
        let eyes = self.eyes(dedup);
        tokio::task::block_in_place(|| eyes.command(&["SAVE"]));
        sleep(lasts).await;
        timeline.note("and comes back");
        tokio::task::block_in_place(|| server.restart()).unwrap();
        // The next restart is one without data again.
        std::fs::remove_file(folder(&self.eyes(dedup)).join("dump.rdb")).unwrap();
    }

    /// One process's clock, that of the collector most often since it gives the events their times; or all at once.
    async fn step_clocks(&self, lasts: Duration, pick: usize, timeline: &Timeline) {
        let (step, whose) = (STEPS_S[pick / 4 % STEPS_S.len()], pick % 4);
        let name = if whose == 3 { self.role(pick / 32).name() } else { self.of(&["collector"])[0].name() };
        let set = |seconds| {
            let clocks = self.clocks.lock().unwrap();
            let chosen = clocks.iter().filter(|(of, _)| whose == 0 || *of == name);
            chosen.for_each(|(_, clock)| clock.set(seconds).unwrap());
        };
        timeline.note(format!("the clock of {} steps by {step} s", if whose == 0 { "all" } else { name }));
        set(step);
        sleep(lasts).await;
        set(0);
        timeline.note("and back");
    }

    fn poison(&self, pick: usize, timeline: &Timeline) {
        let topic = ["views", "views.counted"][pick % 2];
        timeline.note(format!("poison in {topic}"));
        let large = vec![b'x'; 500_000];
        let bad: [Option<&[u8]>; 5] =
            [None, Some(b""), Some(b"garbage"), Some(b"\x08\x63\x12\x03abc"), Some(&large)];
        tokio::task::block_in_place(|| {
            for payload in bad {
                self.system.log().append_raw(topic, 0, Some(b"key"), payload);
            }
        });
    }

    fn eyes(&self, dedup: bool) -> RedisEyes {
        if dedup { self.system.dedup_eyes() } else { self.system.counters_eyes() }
    }
}

/// Where a Redis keeps its files.
fn folder(eyes: &RedisEyes) -> PathBuf {
    let answer = tokio::task::block_in_place(|| eyes.command(&["CONFIG", "GET", "dir"]));
    let answer: Vec<String> = redis::from_redis_value(answer).unwrap();
    answer[1].clone().into()
}

fn used(info: &redis::Value) -> u64 {
    let text: String = redis::from_redis_value(info.clone()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    line.trim().parse().unwrap()
}
