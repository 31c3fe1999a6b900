//! What can be wrong with a store, and how it is told.

use std::fmt;
use stentor_io::DiskError;

/// Bytes that were on the disk, and are others now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// In which file.
    pub file: String,
    /// Where they begin.
    pub offset: u64,
    /// How many there are, as far as that is known.
    pub bytes: u64,
    /// What is wrong.
    pub what: &'static str,
    /// If it is in the log: the numbers of the entries before and behind, where there are any.
    /// What was between them is lost.
    pub between: Option<(u64, Option<u64>)>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { file, offset, bytes, what, .. } = self;
        write!(f, "{file} is damaged at offset {offset} ({bytes} bytes): {what}")?;
        match self.between {
            Some((before, Some(behind))) => match (before.saturating_add(1), behind) {
                (first, behind) if behind <= first => write!(f, "; nothing is lost"),
                (first, behind) => {
                    write!(f, "; of numbers {first} to {} all is lost", behind - 1)
                }
            },
            Some((before, None)) => write!(f, "; what came behind number {before} is lost"),
            None => Ok(()),
        }
    }
}

/// Why a store cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The disk failed.
    Disk(DiskError),
    /// Something that was on the disk is not as it was.
    Damaged(Damage),
    /// A file is of a format that this program does not know.
    Version {
        /// Its name.
        file: String,
        /// The version of its format.
        version: u32,
    },
    /// Who was shown what is in the store did not take it.
    Refused {
        /// In which file it is.
        file: String,
        /// In the frame that begins here.
        offset: u64,
        /// What was said.
        reason: String,
    },
}

impl From<Damage> for OpenError {
    fn from(damage: Damage) -> OpenError {
        OpenError::Damaged(damage)
    }
}

impl From<DiskError> for OpenError {
    fn from(error: DiskError) -> OpenError {
        OpenError::Disk(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Disk(error) => error.fmt(f),
            OpenError::Damaged(damage) => damage.fmt(f),
            OpenError::Version { file, version } => write!(
                f,
                "{file} is of format {version}, and this program knows format 1 only: use the one \
                 that wrote it"
            ),
            OpenError::Refused { file, offset, reason } => {
                write!(f, "{file}, offset {offset}: {reason}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// Whether damage ends the reading, or is written down.
pub(crate) enum Damages {
    Refused,
    Borne(Vec<Damage>),
}

impl Damages {
    pub(crate) fn tell(&mut self, damage: Damage) -> Result<(), OpenError> {
        match self {
            Damages::Refused => Err(OpenError::Damaged(damage)),
            Damages::Borne(found) => {
                found.push(damage);
                Ok(())
            }
        }
    }

    /// An entry came behind those that were lost.
    pub(crate) fn go_on_with(&mut self, seq: u64) {
        let Damages::Borne(found) = self else { return };
        let open = found.iter_mut().rev().map_while(|damage| damage.between.as_mut());
        open.take_while(|between| between.1.is_none()).for_each(|between| between.1 = Some(seq));
    }
}
