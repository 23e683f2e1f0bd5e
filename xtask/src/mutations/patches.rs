//! The conditions that stand where no simulation reaches: in Redis's own scripts, in adapters and in loops. Each patch
//! leaves one out, and names the tests that have to fail then.

/// Tests that notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suite {
    /// The promises of the counters store and of the dedup store, on a real Redis.
    Redis,
    /// The counter's simulation and its other tests.
    Counter,
    /// The counter's room on modelled servers.
    CounterRoom,
    /// The flusher's own tests.
    Flusher,
    /// The promises of the stores of one machine.
    Embedded,
}

impl Suite {
    /// For cargo.
    pub(super) fn selection(self) -> &'static [&'static str] {
        match self {
            Self::Redis => &["--package", "onlooker-redis", "--test", "conformance", "--test", "faults"],
            Self::Counter => &["--package", "onlooker-counter", "--lib"],
            Self::CounterRoom => &["--package", "onlooker-counter", "--test", "room"],
            Self::Flusher => &["--package", "onlooker-flusher"],
            Self::Embedded => &["--package", "onlooker-embedded", "--lib"],
        }
    }

    /// For the test program.
    pub(super) fn filters(self) -> &'static [&'static str] {
        match self {
            Self::Redis => {
                &["--skip", "cluster", "--skip", "password", "--skip", "tls", "--test-threads", "2"]
            }
            Self::Counter => &["--skip", "each_condition_is_needed", "--test-threads", "2"],
            Self::Embedded => &["store::", "--test-threads", "2"],
            _ => &["--test-threads", "2"],
        }
    }
}

/// A condition left out in the sources.
#[derive(Debug)]
pub(super) struct Patch {
    pub(super) name: &'static str,
    /// In the workspace.
    pub(super) file: &'static str,
    /// Stands once in the file.
    pub(super) find: &'static str,
    pub(super) put: &'static str,
    pub(super) removed: &'static str,
    pub(super) then: &'static str,
    pub(super) suite: Suite,
}

const CLAIM: &str = "adapters/redis/src/lua/claim.lua";
const STAGE: &str = "adapters/redis/src/lua/stage.lua";
const INSTALL: &str = "adapters/redis/src/lua/install.lua";
const APPLY: &str = "adapters/redis/src/lua/apply.lua";
const INIT: &str = "adapters/redis/src/lua/init.lua";
const SETTLE_S: &str = "adapters/redis/src/lua/settle_sketches.lua";
const SETTLE_N: &str = "adapters/redis/src/lua/settle_numbers.lua";
const DEDUP: &str = "adapters/redis/src/dedup.rs";
const LOOKUP: &str = "adapters/redis/src/counts/lookup.rs";
const PACK: &str = "adapters/redis/src/counts/apply.rs";
const ROWS: &str = "adapters/embedded/src/store/archive/rows.rs";
const MEMORY: &str = "adapters/embedded/src/store/dedup/mod.rs";
const FLUSH: &str = "adapters/embedded/src/store/counts/flush.rs";

macro_rules! patches {
    ($($name:literal in $file:expr, $suite:ident: $find:literal => $put:literal, $removed:literal, $then:literal;)*) => {
        pub(super) const ALL: &[Patch] = &[$(Patch {
            name: $name,
            file: $file,
            find: $find,
            put: $put,
            removed: $removed,
            then: $then,
            suite: Suite::$suite,
        },)*];
    };
}

patches! {
    "lookup-floor" in DEDUP, Redis: "(at_least..=at_most).contains(&at.offset)" => "at.offset <= at_most",
        "LOOKUP's lower bound", "a view decided twice, differently";
    "lookup-ceiling" in DEDUP, Redis: "(at_least..=at_most).contains(&at.offset)" => "at.offset >= at_least",
        "LOOKUP's upper bound", "a view decided twice, differently";
    "claim-anywhere" in CLAIM, Redis: "if state[1] ~= ARGV[1] then" => "if not state[1] then",
        "CLAIM's == from", "repeats counted, views lost";
    "claim-drops-too-much" in CLAIM, Redis: "for slice = first, last do" => "for slice = first, last + 1 do",
        "slice A - 1 stays at a CLAIM", "a view is forgotten too early";
    "stage-any-part" in STAGE, Redis: "if parts ~= ARGV[1] then" => "if false then",
        "STAGE's count", "a partial state is installed";
    "stage-replaces" in STAGE, Redis: "claims[at] = staged[i] .. claims[at]" => "claims[at] = claims[at]",
        "what earlier parts staged stays", "a partial state is installed";
    "staged-expire-apart" in STAGE, Redis: "for i = 2, 4 do redis" => "for i = 2, 2 do redis",
        "staged keys expire together", "a partial state is installed";
    "install-any-count" in INSTALL, Redis: "if parts ~= ARGV[3] then" => "if false then",
        "INSTALL's count", "a partial state is installed";
    "install-only-if-missing" in INSTALL, Redis: "if state[1] and tonumber(state[1]) >= tonumber(ARGV[1]) then"
        => "if state[1] then",
        "INSTALL if missing or < c (only if missing)", "stuck after a failover below retention";
    "install-goes-back" in INSTALL, Redis: "if state[1] and tonumber(state[1]) >= tonumber(ARGV[1]) then"
        => "if false then",
        "INSTALL discards where fapplied >= c", "the memory goes back";
    "install-keeps-ttl" in INSTALL, Redis: "    redis.call('PERSIST', KEYS[i + 2])\n" => "",
        "INSTALL's PERSIST", "the memory forgets by a clock";
    "apply-anywhere" in APPLY, Redis: "if state[1] ~= ARGV[1] then" => "if not state[1] then",
        "APPLY's applied == from", "views skipped; rebuilt from a stale base";
    "apply-if-further" in APPLY, Redis: "if state[1] ~= ARGV[1] then"
        => "if not state[1] or tonumber(state[1]) < tonumber(ARGV[1]) then",
        "APPLY's == (>= instead)", "views skipped; rebuilt from a stale base";
    "apply-without-gap" in APPLY, Redis: "  return {1, state[1]}" => "  return {0}",
        "APPLY's GAP", "views skipped";
    "missing-is-empty" in APPLY, Redis: "if #missing > 1 then return missing end\n" => "",
        "MISSING (an empty one created instead)", "members lost";
    "created-is-clean" in APPLY, Redis: "        mn = mn + 2\n" => "",
        "a created sketch is dirty", "loss, if an unacknowledged write can vanish";
    "no-persist" in APPLY, Redis: "    for i = f, l do call('PERSIST', raised[i]) end\n" => "",
        "PERSIST", "an unarchived sketch is evicted";
    "restore-sets" in APPLY, Redis: "  if present[at] then" => "  if false then",
        "a present sketch ignores the base (SET instead)", "members lost";
    "base-timestamp" in PACK, Redis: "to.max(base.ts)" => "to",
        "base_ts", "a snapshot that is not \"below T\"";
    "counts-lookup-anywhere" in LOOKUP, Redis:
        "        if at != Some(from) {\n            return Ok(CountLookup::Gap(at));\n        }\n        if keys"
        => "        if at.is_none() {\n            return Ok(CountLookup::Gap(at));\n        }\n        if keys",
        "LOOKUP's == from", "views skipped; rebuilt from a stale base";
    "init-anyway" in INIT, Redis: "if at then return at end\n" => "",
        "NX in INIT", "a zombie makes applied jump over records";
    "settle-any-sketch" in SETTLE_S, Redis: "if marks[i - f + 1] == list[2 * i] then" => "if marks[i - f + 1] then",
        "SETTLE_S's compare", "unarchived data marked clean";
    "settle-any-number" in SETTLE_N, Redis: "if value and string.sub(value, 1, 8) == list[2 * i] then" => "if value then",
        "SETTLE_N's compare", "unarchived data marked clean";
    "carried-counts" in "counter/src/group.rs", Counter: "        if source_offset < 0 {" => "        if source_offset < i64::MIN {",
        "what was carried over is passed", "views of the other log counted twice";
    "registers-kept" in "counter/src/heart.rs", Counter: "            self.known.forget();\n" => "            self.known.forget_numbers();\n",
        "L cleared at GAP", "members lost";
    "u-goes-back" in "counter/src/plan/build.rs", Counter: "to.max(number.u) };" => "to };",
        "u' = max(to, u)", "views counted twice";
    "no-idle-apply" in "counter/src/worker/work.rs", CounterRoom: "if now >= idle_at {" => "if now >= idle_at && from < 0 {",
        "the idle APPLY", "a loss is never noticed";
    "commit-applied" in "counter/src/room/durable.rs", CounterRoom: "shared.archive.durable(partition)" => "shared.counts.applied(partition)",
        "offsets committed only when the archive has them", "the log may drop what the archive lacks";
    "durable-early" in "flusher/src/round/mod.rs", Flusher: "        if self.done.failed > 0 {" => "        if self.done.failed > u64::MAX - 1 {",
        "durable after all acknowledgements", "committed views lost";
    "settle-unacknowledged" in "flusher/src/round/mod.rs", Flusher: "            if !acknowledged {" => "            if !acknowledged && self.page_keys == 0 {",
        "SETTLE after the acknowledgement", "unarchived data marked clean";
    "embedded-sketch-without-timestamp" in ROWS, Embedded: ".is_some_and(|there| there > *t)" => ".is_some_and(|_| false)",
        "TIMESTAMP T on sketches", "the archive shrinks";
    "embedded-number-without-timestamp" in ROWS, Embedded: "there.is_none_or(|there| there <= *u)" => "there.is_none_or(|_| true)",
        "TIMESTAMP u on numbers", "the archive shrinks";
    "embedded-durable-without-timestamp" in ROWS, Embedded: "there.is_none_or(|there| there < offset)" => "there.is_none_or(|_| true)",
        "TIMESTAMP A + 1 on durable", "durable goes back";
    "embedded-lookup-floor" in MEMORY, Embedded: "(at_least..=at_most).contains(&at.offset)" => "at.offset <= at_most",
        "LOOKUP's lower bound", "a view decided twice, differently";
    "embedded-claim-anywhere" in MEMORY, Embedded: "partition.at.is_none_or(|at| at.offset != from)" => "partition.at.is_none()",
        "CLAIM's == from", "repeats counted, views lost";
    "embedded-stage-any-part" in MEMORY, Embedded: "map_or(0, |staged| staged.parts) != part {" => "map_or(0, |_| part) != part {",
        "STAGE's count", "a partial state is installed";
    "embedded-install-any-count" in MEMORY, Embedded: "map_or(0, |staged| staged.parts) != parts {" => "map_or(parts, |_| parts) != parts {",
        "INSTALL's count", "a partial state is installed";
    "embedded-install-only-if-missing" in MEMORY, Embedded: "partition.at.is_some_and(|at| at.offset >= offset)" => "partition.at.is_some()",
        "INSTALL if missing or < c (only if missing)", "stuck after a failover below retention";
    "embedded-apply-anywhere" in "adapters/embedded/src/store/counts/apply.rs", Embedded: "if at != Some(batch.from) {" => "if at.is_none() {",
        "APPLY's applied == from", "views skipped; rebuilt from a stale base";
    "embedded-settle-any-number" in FLUSH, Embedded: "slot.number().is_some_and(|held| held.u == number.u)" => "slot.number().is_some_and(|held| held.u >= number.u)",
        "SETTLE_N's compare", "unarchived data marked clean";
}
