//! The store's promises, and what is its own: the limit.

use super::form::Form;
use super::key::split;
use super::*;
use onlooker_ports::conformance::counts;

struct Test(MemoryCounts);

impl Test {
    fn with_form(&self, partition: i32, key: &CountKey, put: Form) {
        let (scope, name) = split(key);
        let mut partition = self.0.partition(partition).unwrap();
        self.0.account(&mut partition, |partition| {
            let id = partition.find(self.0.hash(name), name).unwrap();
            let slot = partition.item_mut(id).slot_mut(scope).unwrap();
            let (clean, bytes) = (slot.evictable_bytes(), slot.form.heap_bytes());
            slot.form = put;
            partition.heap -= bytes;
            partition.evictable -= clean;
        });
    }
}

impl counts::CountsUnderTest for Test {
    type Store = MemoryCounts;
    type Reader = MemoryCounts;

    fn store(&self) -> &MemoryCounts {
        &self.0
    }

    fn reader(&self) -> &MemoryCounts {
        &self.0
    }

    async fn lose(&self) {
        self.0.clear();
    }

    async fn evict(&self) {
        self.0.evict_all();
    }

    async fn remove(&self, partition: i32, key: &CountKey) {
        self.with_form(partition, key, Form::Absent);
    }

    async fn spoil(&self, partition: i32, key: &CountKey, _with: Option<&[u8]>) {
        self.with_form(partition, key, Form::Broken);
    }
}

#[tokio::test]
async fn it_keeps_the_promises_of_a_count_store() {
    counts::all(&Test(MemoryCounts::new(counts::PARTITIONS, usize::MAX))).await;
}
