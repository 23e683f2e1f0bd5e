//! How much CPU time the heart takes for a view: reading it, deciding, writing the verdict. No server is involved.
//!
//! `cargo run --release -p onlooker-filter --example heart [views]`

use onlooker_event::{ClientId, Facts, ItemId, SiteId, View, ViewId, ViewerHash};
use onlooker_filter::heart::{Command, CommitEnd, Machine, Settings};
use onlooker_filter::{FilterConfig, SiteRules, Sites};
use onlooker_ports::{Applied, Batch, BatchBuilder, ClaimOutcome, Committed, Lookup, Remembered};
use std::sync::Arc;
use std::time::Duration;

const PARTITIONS: i32 = 8;
const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let views: usize = std::env::args().nth(1).map_or(Ok(400_000), |n| n.parse())?;
    for with_ids in [false, true] {
        let batches = batches(views, with_ids)?;
        let mut rounds: Vec<Duration> = Vec::new();
        let mut counted = 0;
        for _ in 0..ROUNDS {
            // Copied outside of the measured time, as a reader hands it over.
            let batches = batches.clone();
            let (spent, n) = drive(batches)?;
            rounds.push(spent);
            counted = n;
        }
        rounds.sort();
        let ns = |d: &Duration| d.as_nanos() as f64 / views as f64;
        println!(
            "{} client ids: {views} views, {counted} outputs; CPU ns a view: min {:.0}, median {:.0}, max {:.0}; {:.2} M views/s/core",
            if with_ids { "with" } else { "without" },
            ns(&rounds[0]),
            ns(&rounds[ROUNDS / 2]),
            ns(&rounds[ROUNDS - 1]),
            1_000.0 / ns(&rounds[ROUNDS / 2]),
        );
    }
    Ok(())
}

/// Views of about 150 bytes, one in ten a repeat of a view that came shortly before.
fn batches(views: usize, with_ids: bool) -> Result<Vec<Batch>, Box<dyn std::error::Error>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut builders: Vec<BatchBuilder> = (0..PARTITIONS).map(BatchBuilder::new).collect();
    let mut offsets = [0_i64; PARTITIONS as usize];
    let mut done = Vec::new();
    let mut recent: Vec<View> = Vec::new();
    for n in 0..views {
        let ms = 1_796_000_000_000 + n as i64 / 20;
        let view = if recent.len() > 100 && random() % 10 == 0 {
            let mut view = recent[random() as usize % recent.len()].clone();
            (view.event_ms, view.received_ms) = (ms, ms);
            view
        } else {
            let viewer = (random() % 300_000).to_be_bytes();
            let mut hash = [0xa5; 16];
            hash[..8].copy_from_slice(&viewer);
            View {
                view_id: ViewId(std::array::from_fn(|_| random() as u8)),
                site: SiteId::new("blog.example.com")?,
                item: ItemId::new(&format!("/2026/11/a-title-of-{}", random() % 100_000))?,
                viewer: ViewerHash(hash),
                key_version: 1,
                event_ms: ms,
                received_ms: ms,
                client_id: if with_ids { Some(ClientId::new(&format!("{:032x}", random()))?) } else { None },
                user_agent: Some("Mozilla/5.0 (X11; Linux x86_64; rv:140.0)".into()),
                referrer: None,
                facts: Facts(0),
            }
        };
        let partition = usize::from(view.viewer.0[7]) % PARTITIONS as usize;
        let mut payload = Vec::new();
        onlooker_proto::encode_view(&view, &mut payload);
        builders[partition].push(offsets[partition], ms, Some(&view.viewer.0), Some(&payload));
        offsets[partition] += 1;
        if recent.len() < 4_000 {
            recent.push(view)
        } else {
            recent[n % 4_000] = view
        }
        if builders[partition].len() == 4_000 {
            let full = std::mem::replace(&mut builders[partition], BatchBuilder::new(partition as i32));
            done.push(full.build());
        }
    }
    done.extend(builders.into_iter().filter(|b| !b.is_empty()).map(BatchBuilder::build));
    Ok(done)
}

/// CPU time of this thread: it does not count what others take from it.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "this system has no clock of a thread's CPU time");
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The time inside the machine, and the number of outputs.
fn drive(batches: Vec<Batch>) -> Result<(Duration, usize), String> {
    let site = SiteId::new("blog.example.com").map_err(|e| e.to_string())?;
    let sites: Sites = [(site, SiteRules::default())].into_iter().collect();
    let config = FilterConfig { linger_ms: 0, ..FilterConfig::default() };
    let mut machine = Machine::new(Arc::new(Settings::new(config, sites)));
    machine.assigned(&(0..PARTITIONS).collect::<Vec<_>>(), 0);
    let mut batches = batches.into_iter();
    let (mut spent, mut outputs_written, mut now) = (Duration::ZERO, 0, 0);
    loop {
        let begun = cpu_time();
        let Some(command) = machine.next_command() else {
            // All that was asked for has been done: the next records.
            let Some(batch) = batches.next() else { break };
            now += 1;
            machine.records(batch, now);
            spent += cpu_time() - begun;
            continue;
        };
        spent += cpu_time() - begun;
        match command {
            Command::AskMemory { partition, attempt } => {
                machine.memory_stands(partition, attempt, Some(Applied { offset: 0, slice: 0 }), now);
            }
            Command::AskGroup { partition, attempt } => {
                let committed = Committed { offset: 0, note: String::new() };
                machine.group_stands(partition, attempt, Some(&committed), (0, i64::MAX), now);
            }
            Command::Lookup { partition, attempt, keys, .. } => {
                // Nothing remembered: all repeats within the measured views are found in the overlay or count.
                let found = Lookup::Found(vec![Remembered::default(); keys.len()]);
                let begun = cpu_time();
                machine.looked_up(partition, attempt, found, now);
                spent += cpu_time() - begun;
            }
            Command::Claim { partition, attempt, to, slice, claims, .. } => {
                drop(claims);
                let begun = cpu_time();
                machine.claimed(partition, attempt, (to, slice), ClaimOutcome::Done, now);
                spent += cpu_time() - begun;
            }
            Command::Commit { outputs, .. } => {
                outputs_written += outputs.len();
                let begun = cpu_time();
                machine.commit_ended(CommitEnd::Done, now);
                spent += cpu_time() - begun;
            }
            Command::Rebuild(job) => return Err(format!("unexpected: {job:?}")),
            Command::Start { partition, start, .. } => machine.started(partition, start, now),
            Command::Forget { .. } | Command::Stop { .. } => {}
        }
        while machine.next_notice().is_some() {}
    }
    Ok((spent, outputs_written))
}
