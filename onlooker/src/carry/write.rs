//! Writing a portable file, frame by frame.

use super::format::{About, Codec, FRAME_BYTES, FRAME_HEAD, Kind, MAGIC, MAX_FRAME, Row, VERSION};
use anyhow::{Context, Result, ensure};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use std::io::Write;

/// Writes one file. What was written is a file only once `finish` has returned.
pub(super) struct Writer<W> {
    out: W,
    frames: u32,
    rows: u64,
    verdicts: u64,
    kind: Kind,
    content: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub(super) fn begin(mut out: W, about: &About) -> Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut writer = Self { out, frames: 0, rows: 0, verdicts: 0, kind: Kind::Rows, content: Vec::new() };
        writer.frame(Kind::About, &serde_json::to_vec(about)?)?;
        Ok(writer)
    }

    pub(super) fn row(&mut self, row: &Row) -> Result<()> {
        self.make_room(Kind::Rows)?;
        row.put(&mut self.content).context("a row is longer than the format allows")?;
        self.rows += 1;
        Ok(())
    }

    /// `message`: a record of `views.counted`.
    pub(super) fn verdict(&mut self, message: &[u8]) -> Result<()> {
        self.make_room(Kind::Verdicts)?;
        self.content.extend_from_slice(&u32::try_from(message.len())?.to_le_bytes());
        self.content.extend_from_slice(message);
        self.verdicts += 1;
        Ok(())
    }

    /// The end; and what was written.
    pub(super) fn finish(mut self) -> Result<(W, u64, u64)> {
        self.flush()?;
        let counts = [self.rows.to_le_bytes(), self.verdicts.to_le_bytes()].concat();
        self.frame(Kind::End, &counts)?;
        self.out.flush()?;
        Ok((self.out, self.rows, self.verdicts))
    }

    fn make_room(&mut self, kind: Kind) -> Result<()> {
        if self.kind != kind || self.content.len() >= FRAME_BYTES {
            self.flush()?;
            self.kind = kind;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.content.is_empty() {
            return Ok(());
        }
        let content = std::mem::take(&mut self.content);
        self.frame(self.kind, &content)?;
        self.content = content;
        self.content.clear();
        Ok(())
    }

    fn frame(&mut self, kind: Kind, content: &[u8]) -> Result<()> {
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        ensure!(length <= MAX_FRAME, "a row is longer than the format allows");
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(content)?;
        let packed = packed.finish()?;
        // Registers of six bits give next to nothing; keys and short sketches halve.
        let (codec, stored) = if packed.len() < content.len() {
            (Codec::Deflate, packed.as_slice())
        } else {
            (Codec::Plain, content)
        };
        let mut head = Vec::with_capacity(FRAME_HEAD);
        head.extend_from_slice(&[kind as u8, codec as u8, 0, 0]);
        head.extend_from_slice(&self.frames.to_le_bytes());
        head.extend_from_slice(&length.to_le_bytes());
        head.extend_from_slice(&u32::try_from(stored.len()).unwrap_or(u32::MAX).to_le_bytes());
        let mut crc = Crc::new();
        crc.update(&head);
        crc.update(stored);
        head.extend_from_slice(&crc.sum().to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(stored)?;
        self.frames += 1;
        Ok(())
    }
}
