//! Redis's header, and reading bytes that somebody else wrote.

use std::fmt;

use crate::dense::DENSE_BYTES;
use crate::sparse;

/// `HYLL`, the encoding, three bytes of 0, the cached cardinality.
pub(crate) const HEADER_BYTES: usize = 16;
const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;

/// How the registers are written down. The registers, and so every answer, are the same in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Runs of equal registers; at most 3,000 bytes in Redis.
    Sparse,
    /// Six bits for each register; always 12,304 bytes in Redis.
    Dense,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sparse => "sparse",
            Self::Dense => "dense",
        })
    }
}

/// Why bytes are not a sketch. Whatever the reason, they must not replace one that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SketchError {
    /// Shorter than the 16 bytes of the header.
    #[error("{bytes} bytes are too short for a sketch's header")]
    TooShort {
        /// Bytes that there are.
        bytes: usize,
    },
    /// The first four bytes are not `HYLL`.
    #[error("not a sketch: the magic bytes are missing")]
    Magic,
    /// Neither dense (0) nor sparse (1).
    #[error("unknown encoding {encoding}")]
    Encoding {
        /// The fifth byte of the header.
        encoding: u8,
    },
    /// A dense sketch that is not 12,304 bytes long.
    #[error("a dense sketch of {bytes} bytes instead of 12304")]
    DenseLength {
        /// Bytes that there are.
        bytes: usize,
    },
    /// A sparse sketch that ends in the middle of an opcode.
    #[error("a sparse sketch ends within an opcode")]
    CutOpcode,
    /// A sparse sketch that covers more than 16,384 registers.
    #[error("a sparse sketch covers more than 16384 registers")]
    TooManyRegisters,
    /// A sparse sketch that covers fewer than 16,384 registers.
    #[error("a sparse sketch covers {registers} registers instead of 16384")]
    TooFewRegisters {
        /// Registers that it covers.
        registers: usize,
    },
}

/// The registers of valid bytes, where they lie.
#[derive(Clone, Copy)]
pub(crate) enum View<'a> {
    /// Opcodes that cover all registers.
    Sparse(&'a [u8]),
    Dense(&'a [u8; DENSE_BYTES]),
}

impl<'a> View<'a> {
    /// Looks at everything that can be wrong. The reserved bytes and the cached cardinality are not looked
    /// at: Redis ignores the first, and the second says nothing that the registers do not.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, SketchError> {
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(SketchError::TooShort { bytes: bytes.len() });
        };
        if !header.starts_with(MAGIC) {
            return Err(SketchError::Magic);
        }
        match header[4] {
            DENSE => {
                let registers =
                    body.try_into().map_err(|_| SketchError::DenseLength { bytes: bytes.len() })?;
                Ok(Self::Dense(registers))
            }
            SPARSE => sparse::check(body).map(|()| Self::Sparse(body)),
            encoding => Err(SketchError::Encoding { encoding }),
        }
    }

    pub(crate) fn to_redis(self, cardinality: u64) -> Vec<u8> {
        let (encoding, body): (u8, &[u8]) = match self {
            Self::Sparse(opcodes) => (SPARSE, opcodes),
            Self::Dense(registers) => (DENSE, registers),
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[encoding, 0, 0, 0]);
        bytes.extend_from_slice(&cardinality.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }
}

/// Whether Redis, and this crate, would take these bytes for a sketch, found without copying them.
///
/// # Errors
/// The first thing that is wrong with them.
pub fn validate(bytes: &[u8]) -> Result<(), SketchError> {
    View::parse(bytes).map(|_| ())
}
