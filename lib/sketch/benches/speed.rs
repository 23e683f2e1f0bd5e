//! What an operation costs: `cargo bench -p onlooker-sketch`. Each line has the least, the middle and the
//! most of eleven rounds; on a machine that does other things as well, the least says most.
#![expect(clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;
use std::time::Instant;

use onlooker_sketch::{Registers, Sketch, hash};

const ROUNDS: usize = 11;
const MANY: usize = 10_000;

fn main() {
    println!("{:<58}{:>10}{:>10}{:>10}", "ns per operation", "min", "median", "max");
    let members: Vec<[u8; 16]> = (0..1_000_000).map(member).collect();
    let hashes: Vec<u64> = members.iter().map(|member| hash(member)).collect();
    adding(&members, &hashes);
    leaving_out(&hashes);
    counting(&members);
    merging(&members);
    uniting(&members);
    converting(&members);
}

fn adding(members: &[[u8; 16]], hashes: &[u64]) {
    each(
        "hash, 16 bytes",
        members.len(),
        || (),
        |()| members.iter().fold(0, |sum, member| sum ^ hash(member)),
    );
    let full = sketch_of(members);
    each("add, dense, 1,000,000 members from empty", members.len(), Sketch::new, |sketch| {
        members.iter().filter(|member| sketch.add(*member)).count()
    });
    each(
        "add, dense, nothing new",
        members.len(),
        || full.clone(),
        |sketch| members.iter().filter(|member| sketch.add(*member)).count(),
    );
    each(
        "add by hash, dense, nothing new",
        members.len(),
        || full.clone(),
        |sketch| hashes.iter().filter(|hash| sketch.add_hash(**hash)).count(),
    );
    let some = sketch_of(&members[..2000]);
    each(
        "add, 10,000 dense sketches in turn",
        members.len(),
        || vec![some.clone(); MANY],
        |sketches| {
            members.iter().enumerate().filter(|(i, member)| sketches[i * 7919 % MANY].add(*member)).count()
        },
    );
    for n in [10, 100, 300, 1000] {
        each(
            &format!("add, sparse, {n} members from empty"),
            n * 100,
            || (),
            |()| (0..100).map(|i| sketch_of(&members[i * n..][..n]).memory_bytes()).sum::<usize>(),
        );
    }
    let sparse = sketch_of(&members[..1000]);
    each(
        "add, sparse of 1,000, nothing new",
        1000,
        || sparse.clone(),
        |sketch| members[..1000].iter().filter(|member| sketch.add(*member)).count(),
    );
}

fn leaving_out(hashes: &[u64]) {
    each("Registers, would_raise and raise", hashes.len(), Registers::new, |registers| {
        leave_out(registers, hashes)
    });
    each(
        "Registers, 10,000 in turn",
        hashes.len(),
        || vec![Registers::new(); MANY],
        |all| {
            hashes
                .iter()
                .enumerate()
                .map(|(i, hash)| leave_out(&mut all[i * 7919 % MANY], &[*hash]))
                .sum::<usize>()
        },
    );
}

fn leave_out(registers: &mut Registers, hashes: &[u64]) -> usize {
    let mut sent = 0;
    for &hash in hashes {
        if registers.would_raise(hash) {
            registers.raise(hash);
            sent += 1;
        }
    }
    sent
}

fn counting(members: &[[u8; 16]]) {
    for n in [10, 1000, 2000, 20_000, 1_000_000] {
        let sketch = sketch_of(&members[..n]);
        let bytes = sketch.to_redis();
        let name = format!("count, {}, {n} members", sketch.encoding());
        // Sketches as they are read have to be counted anew.
        each(
            &name,
            100,
            || (0..100).map(|_| read(&bytes)).collect::<Vec<_>>(),
            |sketches| sketches.iter().map(Sketch::count).sum::<u64>(),
        );
    }
}

fn merging(members: &[[u8; 16]]) {
    for (ours, theirs) in [(20_000, 20_000), (20_000, 1000), (1000, 1000), (10, 10)] {
        let a = sketch_of(&members[..ours]);
        let b = sketch_of(&members[500_000..][..theirs]);
        let bytes = b.to_redis();
        let name = format!("merge_bytes, {} of {ours} with {} of {theirs}", a.encoding(), b.encoding());
        each(
            &name,
            100,
            || vec![a.clone(); 100],
            |sketches| {
                sketches
                    .iter_mut()
                    .filter_map(|sketch| sketch.merge_bytes(&bytes).ok())
                    .filter(|rose| *rose)
                    .count()
            },
        );
    }
}

/// A month of one item, as a range read does it.
fn uniting(members: &[[u8; 16]]) {
    for n in [10, 300, 1000, 20_000] {
        let days: Vec<Vec<u8>> =
            (0..30).map(|day| sketch_of(&members[day * 5000..][..n]).to_redis()).collect();
        for (name, new) in [("new", Sketch::new as fn() -> Sketch), ("new_dense", Sketch::new_dense)] {
            each(
                &format!("{name}, 30 x merge_bytes of {n} members, count"),
                1,
                || (),
                |()| {
                    let mut union = new();
                    days.iter().for_each(|day| _ = union.merge_bytes(day).unwrap());
                    union.count()
                },
            );
        }
    }
}

fn converting(members: &[[u8; 16]]) {
    for n in [10, 1000, 20_000] {
        let sketch = sketch_of(&members[..n]);
        let bytes = sketch.to_redis();
        each(
            &format!("from_redis, {}, {n} members", sketch.encoding()),
            100,
            || (),
            |()| (0..100).map(|_| read(black_box(&bytes)).memory_bytes()).sum::<usize>(),
        );
        each(
            &format!("to_redis, {}, {n} members", sketch.encoding()),
            100,
            || (),
            |()| (0..100).map(|_| black_box(&sketch).to_redis().len()).sum::<usize>(),
        );
    }
}

/// Times `operations` in one go, with the setting up and the dropping left out.
fn each<S, R>(name: &str, operations: usize, set_up: impl Fn() -> S, mut run: impl FnMut(&mut S) -> R) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut state = set_up();
            let start = Instant::now();
            black_box(run(&mut state));
            start.elapsed().as_nanos() as f64 / operations as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<58}{:>10.1}{:>10.1}{:>10.1}", rounds[0], rounds[ROUNDS / 2], rounds[ROUNDS - 1]);
}

fn member(n: u64) -> [u8; 16] {
    let mut member = [0; 16];
    member[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    member[8..].copy_from_slice(&n.to_le_bytes());
    member
}

fn sketch_of(members: &[[u8; 16]]) -> Sketch {
    let mut sketch = Sketch::new();
    for member in members {
        sketch.add(member);
    }
    sketch
}

fn read(bytes: &[u8]) -> Sketch {
    Sketch::from_redis(bytes).unwrap()
}
