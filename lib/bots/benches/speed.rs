//! What an answer costs: time to build the set, its memory, and nanoseconds an agent with and without a memo.
//! `cargo bench -p onlooker-bots`; a file of agents, one a line, may follow behind `--`.

use flate2::read::GzDecoder;
use onlooker_bots::{Memo, classify, memory_bytes, patterns};
use std::hint::black_box;
use std::io::Read;
use std::time::{Duration, Instant};

const BROWSERS: &[u8] = include_bytes!("../tests/data/browsers.txt.gz");
const BOTS: &[u8] = include_bytes!("../tests/data/isbot_bots.txt.gz");
const ROUNDS: usize = 5;

fn main() {
    let begun = Instant::now();
    black_box(classify("Mozilla/5.0"));
    println!("build_us {}", begun.elapsed().as_micros());
    println!("set_bytes {} patterns {:?}", memory_bytes(), patterns());
    for (name, packed) in [("browsers", BROWSERS), ("bots", BOTS)] {
        measure(name, &unpack(packed));
    }
    // Cargo gives a harness's own flag too.
    for file in std::env::args().skip(1).filter(|arg| !arg.starts_with("--")) {
        match std::fs::read_to_string(&file) {
            Ok(text) => measure(&file, &text),
            Err(error) => eprintln!("{file}: {error}"),
        }
    }
}

fn measure(name: &str, text: &str) {
    let agents: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let found = agents.iter().filter(|agent| classify(agent).is_some()).count();
    let uncached = best(&agents, |agent| classify(agent).is_some());
    let few = &agents[..agents.len().min(1_000)];
    let mut memo = Memo::default();
    let cached = best(few, |agent| memo.classify(agent).is_some());
    println!(
        "{name}: {} agents, {found} bots, {:.0} ns uncached, {:.0} ns cached",
        agents.len(),
        nanoseconds(uncached, agents.len()),
        nanoseconds(cached, few.len()),
    );
}

fn best(agents: &[&str], mut ask: impl FnMut(&str) -> bool) -> Duration {
    let round = |ask: &mut dyn FnMut(&str) -> bool| {
        let begun = Instant::now();
        agents.iter().for_each(|agent| {
            black_box(ask(black_box(agent)));
        });
        begun.elapsed()
    };
    (0..ROUNDS).map(|_| round(&mut ask)).min().unwrap_or_default()
}

fn nanoseconds(time: Duration, agents: usize) -> f64 {
    time.as_secs_f64() * 1e9 / agents.max(1) as f64
}

fn unpack(packed: &[u8]) -> String {
    let mut text = String::new();
    let read = GzDecoder::new(packed).read_to_string(&mut text);
    read.map(|_| text).expect("the fixtures are whole")
}
