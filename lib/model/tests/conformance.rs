//! The models keep what every implementation keeps.

use onlooker_event::CountKey;
use onlooker_model::{ArchivePort, CountsPort, Stored};
use onlooker_ports::conformance::{archive, counts};

#[derive(Default)]
struct Test(CountsPort);

impl counts::CountsUnderTest for Test {
    type Store = CountsPort;
    type Reader = CountsPort;

    fn store(&self) -> &CountsPort {
        &self.0
    }

    fn reader(&self) -> &CountsPort {
        &self.0
    }

    async fn lose(&self) {
        self.0.flush_all();
    }

    async fn evict(&self) {
        for partition in 0..counts::PARTITIONS.cast_signed() {
            self.0.with(partition, |c| {
                let keys: Vec<_> = c.evictable.iter().cloned().collect();
                keys.iter().for_each(|key| c.evict(key));
            });
        }
    }

    async fn remove(&self, partition: i32, key: &CountKey) {
        self.0.with(partition, |c| c.sketches.remove(key));
    }

    async fn spoil(&self, partition: i32, key: &CountKey, with: Option<&[u8]>) {
        let stored = with.map_or(Stored::Foreign, |bytes| Stored::Junk(bytes.to_vec().into()));
        self.0.with(partition, |c| c.sketches.insert(key.clone(), stored));
    }
}

#[tokio::test]
async fn counts_keep_their_promises() {
    counts::all(&Test::default()).await;
}

#[tokio::test]
async fn the_archive_keeps_its_promises() {
    archive::all(&ArchivePort::default(), "model", 0).await;
}
