//! The same operations on a real redis-server and here: the same answers, the same bytes.
#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Random, dense_bytes, member_of};
use onlooker_sketch::{Encoding, Sketch, SketchError, hash, validate};
use onlooker_testkit::redis::RedisServer;
use redis::{Connection, RedisResult};

struct Redis {
    connection: Connection,
    _server: RedisServer,
}

impl Redis {
    fn start() -> Self {
        let server = RedisServer::start().unwrap();
        let connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        Self { connection, _server: server }
    }

    fn run<T: redis::FromRedisValue>(&mut self, command: &str, args: &[&[u8]]) -> RedisResult<T> {
        let mut cmd = redis::cmd(command);
        for arg in args {
            cmd.arg(*arg);
        }
        cmd.query(&mut self.connection)
    }

    fn get(&mut self, key: &str) -> Vec<u8> {
        self.run("GET", &[key.as_bytes()]).unwrap()
    }

    fn set(&mut self, key: &str, bytes: &[u8]) {
        self.run::<()>("SET", &[key.as_bytes(), bytes]).unwrap();
    }

    fn count(&mut self, key: &str) -> u64 {
        self.run("PFCOUNT", &[key.as_bytes()]).unwrap()
    }

    /// PFADD of each member alone; the answers.
    fn add_each(&mut self, key: &str, members: &[Vec<u8>]) -> Vec<bool> {
        let mut pipe = redis::pipe();
        for member in members {
            pipe.cmd("PFADD").arg(key).arg(member);
        }
        pipe.query(&mut self.connection).unwrap()
    }

    /// PFADD of members together.
    fn add_all(&mut self, key: &str, members: &[Vec<u8>]) -> bool {
        redis::cmd("PFADD").arg(key).arg(members).query(&mut self.connection).unwrap()
    }
}

fn members(name: &str, numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    numbers.map(|n| format!("{name}-{n}").into_bytes()).collect()
}

#[test]
fn every_answer_and_every_byte_from_0_to_500() {
    let mut redis = Redis::start();
    for name in ["a", "viewer", "a longer name of thirty-two bytes"] {
        let mut sketch = Sketch::new();
        assert!(redis.add_all(name, &[]), "no member at all creates the key");
        for n in 0..=500 {
            assert_eq!(sketch.count(), redis.count(name), "PFCOUNT of {n}");
            assert_eq!(sketch.to_redis(), redis.get(name), "bytes of {n}");
            let member = members(name, n..n + 1);
            assert_eq!(vec![sketch.add(&member[0])], redis.add_each(name, &member), "PFADD of number {n}");
        }
    }
}

#[test]
fn every_answer_and_every_byte_up_to_a_million() {
    let mut redis = Redis::start();
    let mut sketch = Sketch::new();
    let (mut n, mut dense_at) = (0, 0);
    while n < 1_000_000 {
        let next = (n + 1 + n / 8).min(1_000_000);
        let added = members("v", n..next);
        if next <= 200_000 {
            let ours: Vec<bool> = added.iter().map(|member| sketch.add(member)).collect();
            assert_eq!(ours, redis.add_each("k", &added), "PFADD of {n}..{next}");
        } else {
            let rose = added.iter().fold(false, |rose, member| sketch.add(member) | rose);
            let theirs = added.chunks(100_000).fold(false, |rose, part| redis.add_all("k", part) | rose);
            assert_eq!(rose, theirs, "PFADD of {n}..{next}");
        }
        n = next;
        if dense_at == 0 && sketch.encoding() == Encoding::Dense {
            dense_at = n;
        }
        assert_eq!(sketch.count(), redis.count("k"), "PFCOUNT of {n}");
        assert_eq!(sketch.to_redis(), redis.get("k"), "bytes of {n}");
    }
    assert!((500..4000).contains(&dense_at), "dense at {dense_at}");
}

#[test]
fn the_change_to_dense_comes_at_the_same_member() {
    let mut redis = Redis::start();
    for round in 0..20 {
        let (name, mut sketch) = (format!("round {round}"), Sketch::new());
        let first = members(&name, 0..700);
        redis.add_all(&name, &first);
        first.iter().for_each(|member| _ = sketch.add(member));
        for n in 700.. {
            let member = members(&name, n..n + 1);
            assert_eq!(redis.add_all(&name, &member), sketch.add(&member[0]));
            assert_eq!(sketch.count(), redis.count(&name));
            assert_eq!(sketch.to_redis(), redis.get(&name), "bytes of {n} in {name}");
            if sketch.encoding() == Encoding::Dense {
                break;
            }
        }
    }
}

#[test]
fn members_of_every_length_and_of_every_rank() {
    let mut redis = Redis::start();
    let mut sketch = Sketch::new();
    let mut random = Random(1);
    let mut odd: Vec<Vec<u8>> = (0..100).map(|len| (0..len).map(|_| random.next() as u8).collect()).collect();
    odd.extend([b"".to_vec(), b" ".to_vec(), vec![0], vec![0; 8], vec![255; 64]]);
    // Hashes that are all zero, or have up to 50 zeros after the index: no search would find their members.
    for rank in 0..=50 {
        for index in [0, 1, 8191, 16383] {
            let wanted = index | 1_u64.checked_shl(14 + rank).unwrap_or(0);
            let member = member_of(wanted);
            assert_eq!(hash(&member), wanted);
            odd.push(member.to_vec());
        }
    }
    for member in odd {
        assert_eq!(redis.add_all("k", std::slice::from_ref(&member)), sketch.add(&member), "{member:?}");
        assert_eq!(sketch.count(), redis.count("k"));
        assert_eq!(sketch.to_redis(), redis.get("k"), "after {member:?}");
    }
    assert_eq!(sketch.registers()[16383], 51);
}

#[test]
fn redis_goes_on_from_our_bytes() {
    let mut redis = Redis::start();
    for n in [0, 1, 10, 100, 1_000, 1_300, 1_500, 2_000, 5_000, 30_000] {
        let (mut ours, mut more) = (Sketch::new(), Sketch::new());
        members("a", 0..n).iter().for_each(|member| _ = ours.add(member));
        redis.set("ours", &ours.to_redis());
        assert_eq!(redis.count("ours"), ours.count());
        assert_eq!(redis.get("ours"), ours.to_redis(), "the cached count was valid");

        let added = members("b", 0..n / 2 + 3);
        assert_eq!(
            redis.add_each("ours", &added),
            added.iter().map(|member| ours.add(member)).collect::<Vec<_>>()
        );
        assert_eq!(redis.count("ours"), ours.count());
        assert_eq!(redis.get("ours"), ours.to_redis());

        members("a", n / 2..n * 2).iter().for_each(|member| _ = more.add(member));
        redis.set("more", &more.to_redis());
        assert_eq!(redis.run::<u64>("PFCOUNT", &[b"ours", b"more"]).unwrap(), {
            let mut both = ours.clone();
            both.merge(&more);
            both.count()
        });
        redis.run::<()>("PFMERGE", &[b"merged", b"ours", b"more"]).unwrap();
        ours.merge(&more);
        assert_eq!(redis.count("merged"), ours.count());
        let merged = Sketch::from_redis(&redis.get("merged")).unwrap();
        assert!(merged.register_eq(&ours), "PFMERGE of {n}");
        assert_eq!(merged.encoding(), ours.encoding(), "PFMERGE of {n}");
        // Redis takes the merged bytes as well, and merging again changes nothing on either side.
        redis.set("ours", &ours.to_redis());
        redis.run::<()>("PFMERGE", &[b"ours", b"more", b"merged"]).unwrap();
        assert!(Sketch::from_redis(&redis.get("ours")).unwrap().register_eq(&ours));
        assert!(!ours.merge_bytes(&redis.get("more")).unwrap());
    }
}

#[test]
fn counts_of_registers_that_no_stream_would_give() {
    let mut redis = Redis::start();
    let mut random = Random(2);
    for round in 0..400 {
        // From nearly empty to nearly full, the rank that only an all-zero hash has among them.
        let (spread, filled) = (round % 52 + 1, random.next() % 101);
        let registers = std::array::from_fn(|_| {
            if random.next() % 100 < filled { (random.next() % (spread + 1)) as u8 } else { 0 }
        });
        let bytes = dense_bytes(&registers);
        let ours = Sketch::from_redis(&bytes).unwrap();
        assert_eq!(ours.registers(), registers);
        redis.set("k", &bytes);
        assert_eq!(redis.count("k"), ours.count(), "values to {spread} in {filled} % of the registers");
        assert_eq!(redis.get("k"), ours.to_redis());
    }
}

#[test]
fn a_sketch_of_a_server_with_a_higher_limit() {
    let mut redis = Redis::start();
    redis.run::<()>("CONFIG", &[b"SET", b"hll-sparse-max-bytes", b"16000"]).unwrap();
    redis.add_all("k", &members("m", 0..3_000));
    let bytes = redis.get("k");
    assert!(bytes.len() > 3_000 && bytes[4] == 1, "{} bytes, encoding {}", bytes.len(), bytes[4]);
    let mut sketch = Sketch::from_redis(&bytes).unwrap();
    assert_eq!(sketch.encoding(), Encoding::Dense);
    assert_eq!(sketch.count(), redis.count("k"));
    assert!(!sketch.merge_bytes(&bytes).unwrap());
    redis.set("k", &sketch.to_redis());
    assert_eq!(redis.count("k"), sketch.count());
}

#[test]
fn a_sketch_that_redis_still_adds_to_although_it_is_broken() {
    let mut redis = Redis::start();
    redis.add_all("k", &members("m", 0..100));
    let sound = Sketch::from_redis(&redis.get("k")).unwrap();
    redis.run::<u64>("APPEND", &[b"k", b"junk"]).unwrap();
    assert!(redis.add_all("k", &members("m", 100..101)), "PFADD notices nothing");
    assert!(redis.run::<u64>("PFCOUNT", &[b"k"]).is_err(), "PFCOUNT does");
    let broken = redis.get("k");
    assert_eq!(validate(&broken), Err(SketchError::TooManyRegisters));
    let mut kept = sound.clone();
    assert_eq!(kept.merge_bytes(&broken), Err(SketchError::TooManyRegisters));
    assert!(kept.register_eq(&sound));
}

/// Redis's own opinion of bytes: the count, or none if it refuses them.
fn opinion(redis: &mut Redis, bytes: &[u8]) -> Option<u64> {
    redis.set("k", bytes);
    // As a negative number Redis shows what we show as the highest of counts.
    redis
        .run::<i64>("PFCOUNT", &[b"k"])
        .ok()
        .map(|count| if count < 0 { i64::MAX as u64 } else { count as u64 })
}

#[test]
fn what_redis_refuses_is_refused() {
    let mut redis = Redis::start();
    let mut random = Random(3);
    let sizes = [0, 1, 20, 300, 1_000, 3_000];
    let sketches = sizes.map(|n| {
        let mut sketch = Sketch::new();
        members("m", 0..n).iter().for_each(|member| _ = sketch.add(member));
        let mut bytes = sketch.to_redis();
        bytes[15] |= 0x80; // stale, or Redis would answer from the header
        bytes
    });
    let (mut refused, mut accepted) = (0, 0);
    for round in 0..6_000 {
        let mut bytes = sketches[round % sketches.len()].clone();
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.extend((0..=random.below(5)).map(|_| random.next() as u8)),
            2 => bytes[at] = random.next() as u8,
            3 => bytes[at] ^= 1 << random.below(8),
            4 => _ = bytes.remove(at),
            5 => bytes.insert(at, random.next() as u8),
            6 => bytes.swap(at, at.saturating_sub(1)),
            _ => bytes = String::from_utf8_lossy(&bytes).into_owned().into_bytes(),
        }
        if let Some(stale) = bytes.get_mut(15) {
            *stale |= 0x80;
        }
        let (ours, theirs) = (Sketch::from_redis(&bytes), opinion(&mut redis, &bytes));
        match ours {
            Ok(sketch) => {
                assert_eq!(Some(sketch.count()), theirs, "{bytes:?}");
                accepted += 1;
            }
            // Redis reads the byte after the last one as if it were the opcode's.
            Err(SketchError::CutOpcode) => refused += 1,
            Err(error) => {
                assert_eq!(theirs, None, "{error}: {bytes:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 2_000 && accepted > 1_000, "{refused} refused, {accepted} accepted");
}
