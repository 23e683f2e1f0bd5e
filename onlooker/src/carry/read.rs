//! Reading a portable file, frame by frame. Nothing is handed out of a frame that is not whole.

use super::format::{About, Codec, FRAME_HEAD, Kind, MAGIC, MAX_FRAME, Row, VERSION, array, part};
use bytes::Bytes;
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::io::{self, Read};

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("is no export of Onlooker")]
    Foreign,
    #[error("has format version {0}, and this program knows versions up to {VERSION}: use the newer program")]
    Newer(u32),
    #[error("ends at byte {0}, in the middle: it is not whole")]
    Truncated(u64),
    #[error("is damaged at byte {at}: {what}")]
    Damaged { at: u64, what: &'static str },
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// What comes next in a file.
#[derive(Debug)]
pub(super) enum Part {
    Rows(Vec<Row>),
    /// Messages, each a record of `views.counted`.
    Verdicts(Vec<Bytes>),
}

/// An open file.
pub(super) struct Reader<R> {
    from: R,
    at: u64,
    frames: u32,
    rows: u64,
    verdicts: u64,
    about: About,
}

impl<R: Read> Reader<R> {
    pub(super) fn begin(mut from: R) -> Result<Self, ReadError> {
        let mut head = [0; 12];
        let got = fill(&mut from, &mut head)?;
        let known = got.min(MAGIC.len());
        if got == 0 || head[..known] != MAGIC[..known] {
            return Err(ReadError::Foreign);
        }
        if got < head.len() {
            return Err(ReadError::Truncated(got as u64));
        }
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if version > VERSION {
            return Err(ReadError::Newer(version));
        }
        if version == 0 {
            return Err(ReadError::Damaged { at: 8, what: "its version is 0" });
        }
        let about = About {
            made_ms: 0,
            program: String::new(),
            from: String::new(),
            generation: String::new(),
            up_to: Vec::new(),
            newest_ms: 0,
            slice: 0,
            slice_s: 0,
            identity: None,
        };
        let mut reader = Self { from, at: 12, frames: 0, rows: 0, verdicts: 0, about };
        let (kind, content) = reader.frame()?;
        let damaged = ReadError::Damaged { at: 12, what: "it does not say what it is" };
        if kind != Kind::About {
            return Err(damaged);
        }
        reader.about = serde_json::from_slice(&content).map_err(|_| damaged)?;
        Ok(reader)
    }

    pub(super) fn about(&self) -> &About {
        &self.about
    }

    /// None at the end of a file that is whole.
    pub(super) fn next(&mut self) -> Result<Option<Part>, ReadError> {
        let at = self.at;
        let (kind, mut content) = self.frame()?;
        let damaged = |what| ReadError::Damaged { at, what };
        match kind {
            Kind::About => Err(damaged("it says twice what it is")),
            Kind::Rows => {
                let mut rows = Vec::new();
                while !content.is_empty() {
                    rows.push(Row::take(&mut content).ok_or(damaged("a row makes no sense"))?);
                }
                self.rows += rows.len() as u64;
                Ok(Some(Part::Rows(rows)))
            }
            Kind::Verdicts => {
                let mut verdicts = Vec::new();
                while !content.is_empty() {
                    let length = array(&mut content).map(u32::from_le_bytes);
                    let message = length.and_then(|length| part(&mut content, length as usize));
                    verdicts.push(message.ok_or(damaged("a verdict makes no sense"))?);
                }
                self.verdicts += verdicts.len() as u64;
                Ok(Some(Part::Verdicts(verdicts)))
            }
            Kind::End => {
                let counts = [self.rows.to_le_bytes(), self.verdicts.to_le_bytes()].concat();
                if content != counts {
                    return Err(damaged("it has not as many rows and verdicts as it says"));
                }
                if fill(&mut self.from, &mut [0])? != 0 {
                    return Err(ReadError::Damaged { at: self.at, what: "something follows the end" });
                }
                Ok(None)
            }
        }
    }

    fn frame(&mut self) -> Result<(Kind, Bytes), ReadError> {
        let at = self.at;
        let damaged = |what| ReadError::Damaged { at, what };
        let mut head = [0; FRAME_HEAD];
        self.exactly(&mut head)?;
        let number =
            |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
        let (length, stored_length, crc) = (number(8), number(12), number(16));
        if length > MAX_FRAME || stored_length > MAX_FRAME {
            return Err(damaged("a length is out of bounds"));
        }
        let mut stored = vec![0; stored_length as usize];
        self.exactly(&mut stored)?;
        let mut sum = Crc::new();
        sum.update(&head[..16]);
        sum.update(&stored);
        if sum.sum() != crc {
            return Err(damaged("the checksum does not fit"));
        }
        // With a good checksum: not damage by chance, but a part that was taken out, or put elsewhere.
        if number(4) != self.frames {
            return Err(damaged("a part is missing or stands elsewhere"));
        }
        self.frames += 1;
        let kind = Kind::of(head[0]).ok_or(damaged("a part is of an unknown kind"))?;
        let content = match head[1] {
            codec if codec == Codec::Plain as u8 => stored,
            codec if codec == Codec::Deflate as u8 => {
                let mut content = Vec::with_capacity(length as usize);
                let unpacked = DeflateDecoder::new(&stored[..]).take(u64::from(length) + 1);
                let mut unpacked = unpacked;
                unpacked.read_to_end(&mut content).map_err(|_| damaged("a part cannot be unpacked"))?;
                content
            }
            _ => return Err(damaged("a part is packed in an unknown way")),
        };
        if content.len() != length as usize {
            return Err(damaged("a part has another length than it says"));
        }
        Ok((kind, content.into()))
    }

    fn exactly(&mut self, into: &mut [u8]) -> Result<(), ReadError> {
        let got = fill(&mut self.from, into)?;
        self.at += got as u64;
        if got < into.len() { Err(ReadError::Truncated(self.at)) } else { Ok(()) }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match from.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
