//! What comes into the logs: views, and what was carried over from another log.

use super::check::Right;
use super::log::{ViewRecord, place_of};
use super::reference;
use super::world::World;
use super::{PARTITIONS, SLICE_S};
use crate::heart::Note;
use crate::rules::RULE_SET_VERSION;
use onlooker_event::{ClientId, Facts, ItemId, SiteId, View, ViewId, ViewerHash, client_id_key, dedup_key};
use onlooker_ports::Committed;
use onlooker_proto::{CARRIED_OVER, Counted, encode_counted, encode_view};

impl World<'_> {
    /// A view of some viewer whose views stand in the partition, at a time like that of appending.
    fn view(&mut self, partition: usize, event_ms: i64) -> View {
        let facts = match self.rng.below(20) {
            0 => Facts::PREFETCH,
            1 => Facts::SELF_VIEW,
            _ => Facts(0),
        };
        let id = self.rng.chance(30).then(|| ["a", "b", "c"][self.rng.below(3)]);
        View {
            view_id: ViewId([7; 16]),
            site: SiteId::new("s").unwrap(),
            item: ItemId::new(["x", "y"][self.rng.below(2)]).unwrap(),
            viewer: ViewerHash([u8::try_from(partition * 2 + self.rng.below(2)).unwrap(); 16]),
            key_version: 1,
            event_ms,
            received_ms: event_ms,
            client_id: id.map(|id| ClientId::new(id).unwrap()),
            user_agent: None,
            referrer: None,
            facts,
        }
    }

    /// The log begins with the claims of another one, and its first note names their slice.
    pub(super) fn carry_over(&mut self) {
        let now_s = self.append_ms / 1_000;
        let slice = now_s / i64::from(SLICE_S);
        for partition in 0..PARTITIONS {
            let mut carried = Vec::new();
            for _ in 0..self.rng.below(5) {
                let time_s = now_s - self.rng.range(0, 45);
                let view = View { facts: Facts(0), ..self.view(partition, time_s * 1_000) };
                let (key, slice) = (format!("{}:{}", view.site, view.item), time_s / i64::from(SLICE_S));
                let id = view.client_id.as_ref();
                let counted = Counted {
                    view_id: view.view_id,
                    site: view.site.clone(),
                    item: view.item.clone(),
                    viewer: view.viewer,
                    event_ms: view.event_ms,
                    source_partition: i32::try_from(partition).unwrap(),
                    source_offset: CARRIED_OVER,
                    slice,
                    slice_s: SLICE_S,
                    claim: dedup_key(view.viewer, key.as_bytes()),
                    id_claim: id.map(|id| client_id_key(view.viewer, id.as_str(), key.as_bytes())),
                    rule_version: RULE_SET_VERSION,
                };
                let mut payload = Vec::new();
                encode_counted(&counted, &mut payload);
                self.log.carry_over(place_of(key.as_bytes()), self.append_ms, key.as_bytes(), payload);
                self.record.say(|| format!("carried over for {partition}: {view:?} in slice {slice}"));
                carried.push((view, slice));
            }
            self.references[partition].goes_on(slice, &carried);
            let note = Note { slice, slice_s: SLICE_S }.write();
            let partition = i32::try_from(partition).unwrap();
            self.log.committed.insert(partition, Committed { offset: 0, note });
        }
    }

    pub(super) fn append(&mut self) {
        let partition = self.rng.below(PARTITIONS);
        self.append_ms += self.rng.range(0, self.shape.pace_ms);
        match self.rng.below(30) {
            0 => self.append_ms += self.rng.range(0, 60_000),
            // Where a slice begins is where clocks matter.
            1..5 => {
                let slice_ms = i64::from(SLICE_S) * 1_000;
                self.append_ms = (self.append_ms / slice_ms + 1) * slice_ms + self.rng.range(0, 1_000);
            }
            _ => {}
        }
        // Several brokers: the clock of the next record may step back.
        let append_ms = self.append_ms - self.rng.range(0, 1_500);
        // Within what the collector lets through, early or late.
        let event_ms = append_ms + self.rng.range(-9_000, 9_000);
        let view = self.view(partition, event_ms);
        let view = (!self.rng.chance(3)).then_some(view);
        let mut payload = Vec::new();
        match &view {
            Some(view) => encode_view(view, &mut payload),
            None => payload.extend_from_slice(b"garbage"),
        }
        let verdict = self.references[partition].judge(&reference::Record { append_ms, view: view.clone() });
        let offset = self.log.views[partition].len();
        self.record.say(|| {
            let what = view.map_or("garbage".to_owned(), |v| {
                let id = v.client_id.as_ref().map(|id| id.as_str().to_owned());
                format!("viewer {} sees {} at {} ms, id {id:?}", v.viewer.0[0], v.item, v.event_ms)
            });
            format!("views {partition}/{offset}: {what}: {verdict:?}")
        });
        self.right[partition].push(Right { verdict, written: false });
        self.log.views[partition].push(ViewRecord { append_ms, payload });
        self.stats.records += 1;
    }
}
