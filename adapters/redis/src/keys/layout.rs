//! Which log the keys belong to.

use onlooker_ports::PortError;

/// Most partitions that a log may have here: beyond it, neighbours could not have slots of their own.
const MAX_PARTITIONS: u32 = 4_096;

/// Longest generation, in bytes: it stands in every key.
const MAX_GENERATION_BYTES: usize = 32;

/// Which log the keys are a function of. Another topic, or one with another number of partitions, is another
/// layout, and keys of two layouts never meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    generation: Box<str>,
    partitions: u32,
}

impl Layout {
    /// `generation` names the topic's incarnation: 1 to 32 bytes of `A-Z a-z 0-9 _ -`. `partitions` is how many
    /// the topic has, 1 to 4,096.
    ///
    /// # Errors
    /// `Misconfigured`, with the limit and what came.
    pub fn new(generation: &str, partitions: u32) -> Result<Self, PortError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let fault = if generation.is_empty() || generation.len() > MAX_GENERATION_BYTES {
            format!("generation is {} bytes long, not 1 to {MAX_GENERATION_BYTES}", generation.len())
        } else if !generation.bytes().all(plain) {
            "generation has characters other than A-Z a-z 0-9 _ -".to_owned()
        } else if !(1..=MAX_PARTITIONS).contains(&partitions) {
            format!("{partitions} partitions are not within 1 to {MAX_PARTITIONS}")
        } else {
            return Ok(Self { generation: generation.into(), partitions });
        };
        Err(PortError::Misconfigured { server: "redis", detail: fault })
    }

    /// The topic's incarnation.
    pub fn generation(&self) -> &str {
        &self.generation
    }

    /// How many partitions the topic has.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// `GENERATION PARTITIONS`: what stands in the layout key.
    pub(crate) fn encode(&self) -> String {
        format!("{} {}", self.generation, self.partitions)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (generation, partitions) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        Self::new(generation, partitions.parse().ok()?).ok()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_written_and_read() {
        let layout = Layout::new("b3Jk-_9", 12).unwrap();
        assert_eq!(Layout::decode(layout.encode().as_bytes()), Some(layout));
        for bad in ["", "1", "1 0", "1 x", "{1} 3", "1 2 3"] {
            assert_eq!(Layout::decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
