//! The text that is committed with an offset: the slice there, and what a slice was.

use super::Settings;

/// The running maximum of the append-time slice below an offset, with the length of a slice in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// The slice: append time divided by the length.
    pub slice: i64,
    /// The length, in seconds.
    pub slice_s: u32,
}

impl Note {
    /// `SLICE/SECONDS`.
    pub fn write(self) -> String {
        format!("{}/{}", self.slice, self.slice_s)
    }

    /// None: not written by a filter.
    pub fn read(text: &str) -> Option<Self> {
        let (slice, slice_s) = text.split_once('/')?;
        let note = Self { slice: slice.parse().ok()?, slice_s: slice_s.parse().ok()? };
        (note.slice_s > 0).then_some(note)
    }

    /// The last slice of the configured length that begins within this one. The same for a slice that stays as it is.
    pub(crate) fn slice_now(self, settings: &Settings) -> i64 {
        self.in_slices_of(settings.config.slice_s)
    }

    /// The last slice of that length, in seconds, that begins within this one.
    pub fn in_slices_of(self, slice_s: u32) -> i64 {
        let length = i64::from(slice_s.max(1));
        if i64::from(self.slice_s) == length {
            return self.slice;
        }
        (self.slice + 1).saturating_mul(self.slice_s.into()).saturating_sub(1).div_euclid(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FilterConfig, Sites};

    #[test]
    fn is_read_as_written() {
        let note = Note { slice: 498_899, slice_s: 3_600 };
        assert_eq!(note.write(), "498899/3600");
        assert_eq!(Note::read("498899/3600"), Some(note));
        for text in ["", "498899", "498899/", "498899/0", "x/3600", "NULL"] {
            assert_eq!(Note::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_slice_of_another_length_is_the_last_that_it_covers() {
        let settings =
            |slice_s| Settings::new(FilterConfig { slice_s, ..FilterConfig::default() }, Sites::default());
        // Seconds 7,200 to 10,799.
        let note = Note { slice: 2, slice_s: 3_600 };
        assert_eq!(note.slice_now(&settings(3_600)), 2);
        assert_eq!(note.slice_now(&settings(7_200)), 1);
        assert_eq!(note.slice_now(&settings(1_800)), 5);
        assert_eq!(note.slice_now(&settings(2_000)), 5);
    }
}
