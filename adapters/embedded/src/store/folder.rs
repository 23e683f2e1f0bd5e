//! The data folder: whose it is, and in which format.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

const FORMAT: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
const LOCK: &str = "LOCK";
/// First word of the format file.
const MAGIC: &str = "onlooker-folder";
/// What may lie in a folder that is still to become ours: a first start that was cut short leaves the middle two, and
/// a fresh file system has the last.
const HARMLESS: [&str; 3] = [LOCK, FORMAT_NEW, "lost+found"];

/// Why a folder cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process works in it.
    #[error("{} is in use by another process{}", .path.display(), .pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process that holds it, as it wrote itself down; none if that cannot be read.
        pid: Option<u32>,
    },
    /// A newer program wrote it.
    #[error(
        "{} has format version {found}, and this program knows versions up to {known}: use the newer program",
        .path.display()
    )]
    Newer {
        /// The folder.
        path: PathBuf,
        /// The folder's version.
        found: u32,
        /// The program's version.
        known: u32,
    },
    /// It has files in it and no format file: it belongs to somebody else.
    #[error("{} is not empty and has no {FORMAT} file: it is not a folder of Onlooker", .path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// Its format file says nothing that this program understands.
    #[error("{} does not name a format version", .path.display())]
    BadFormat {
        /// The format file.
        path: PathBuf,
    },
    /// There is something else at the path.
    #[error("{} is not a folder", .path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// A folder that is this process's alone until it is dropped.
///
/// ```text
/// FORMAT          "onlooker-folder 1": the version of everything below
/// LOCK            locked while a process works here; holds its pid
/// log/            the log's segments
/// archive.redb    archived counts and durable offsets
/// ```
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Its lock goes with it, also when the process is killed.
    _lock: File,
}

fn io_at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FolderError + 'a {
    move |source| FolderError::Io { action, path: path.to_owned(), source }
}

/// Makes what was created or renamed in a folder survive a power loss.
fn sync_folder(path: &Path) -> Result<(), FolderError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(io_at("sync", path))
}

/// Creates a folder, readable by its owner alone, and those above it. True if it was not there.
fn create(path: &Path) -> Result<bool, FolderError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return if path.is_dir() {
                Ok(false)
            } else {
                Err(FolderError::NotAFolder { path: path.to_owned() })
            };
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            let Some(above) = above else { return Err(io_at("create", path)(error)) };
            create(above)?;
            DirBuilder::new().mode(0o700).create(path).map_err(io_at("create", path))?;
        }
        Err(error) => return Err(io_at("create", path)(error)),
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    sync_folder(above.unwrap_or(Path::new(".")))?;
    Ok(true)
}

impl Folder {
    /// Opens a folder, or makes one where there is nothing or an empty folder.
    ///
    /// # Errors
    /// If it is somebody else's, another process's, a newer program's, or cannot be read and written.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, FolderError> {
        let path = path.into();
        create(&path)?;
        // Before anything is written into it: a folder that is not ours stays as it was.
        if !path.join(FORMAT).exists() && !is_ours_to_take(&path)? {
            return Err(FolderError::Foreign { path });
        }
        let lock = lock(&path)?;
        match read_format(&path)? {
            Some(found) if found > FORMAT_VERSION => {
                return Err(FolderError::Newer { path, found, known: FORMAT_VERSION });
            }
            Some(_) => {}
            None => {
                fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(io_at("protect", &path))?;
                write_format(&path)?;
            }
        }
        Ok(Self { path, _lock: lock })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The log's folder, created if it is not there.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn log(&self) -> Result<PathBuf, FolderError> {
        let path = self.path.join("log");
        create(&path)?;
        Ok(path)
    }

    /// The archive's file; whether or not it is there.
    pub fn archive(&self) -> PathBuf {
        self.path.join("archive.redb")
    }
}

fn is_ours_to_take(path: &Path) -> Result<bool, FolderError> {
    for entry in fs::read_dir(path).map_err(io_at("list", path))? {
        let name = entry.map_err(io_at("list", path))?.file_name();
        if !HARMLESS.iter().any(|harmless| name == *harmless) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn lock(folder: &Path) -> Result<File, FolderError> {
    let path = folder.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(io_at("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(FolderError::Locked { path: folder.to_owned(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(io_at("lock", &path)(error)),
    }
    // For the message to whoever comes second; nothing rests on it.
    let written = file.set_len(0).and_then(|()| file.rewind());
    written.and_then(|()| writeln!(file, "{}", std::process::id())).map_err(io_at("write", &path))?;
    Ok(file)
}

fn read_format(folder: &Path) -> Result<Option<u32>, FolderError> {
    let path = folder.join(FORMAT);
    let text = match fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_at("read", &path)(error)),
    };
    let mut words = text.split_whitespace();
    // Whatever follows the version is a later program's affair.
    match (words.next(), words.next().and_then(|version| version.parse().ok())) {
        (Some(MAGIC), Some(version)) => Ok(Some(version)),
        _ => Err(FolderError::BadFormat { path }),
    }
}

/// In one step: a power loss leaves no format file, or a whole one.
fn write_format(folder: &Path) -> Result<(), FolderError> {
    let (new, path) = (folder.join(FORMAT_NEW), folder.join(FORMAT));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&new).map_err(io_at("create", &new))?;
    writeln!(file, "{MAGIC} {FORMAT_VERSION}").map_err(io_at("write", &new))?;
    file.sync_all().map_err(io_at("sync", &new))?;
    fs::rename(&new, &path).map_err(io_at("rename", &new))?;
    sync_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_folder_is_made_and_opened_again() {
        let above = tempdir().unwrap();
        let path = above.path().join("a/b/data");
        let folder = Folder::open(&path).unwrap();
        assert_eq!(folder.path(), path);
        assert_eq!(mode(&path), 0o700);
        assert_eq!(fs::read_to_string(path.join(FORMAT)).unwrap(), "onlooker-folder 1\n");
        let log = folder.log().unwrap();
        assert!(log.is_dir() && log == folder.log().unwrap());
        assert_eq!(folder.archive(), path.join("archive.redb"));
        drop(folder);
        Folder::open(&path).unwrap();
    }

    #[test]
    fn an_empty_folder_becomes_ours_and_private() {
        let path = tempdir().unwrap();
        fs::set_permissions(path.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(path.path().join("lost+found")).unwrap();
        Folder::open(path.path()).unwrap();
        assert_eq!(mode(path.path()), 0o700);
    }

    #[test]
    fn a_first_start_that_was_cut_short_is_repeated() {
        let path = tempdir().unwrap();
        fs::write(path.path().join(LOCK), "123").unwrap();
        fs::write(path.path().join(FORMAT_NEW), "onlook").unwrap();
        Folder::open(path.path()).unwrap();
        assert!(!path.path().join(FORMAT_NEW).exists());
    }

    #[test]
    fn a_second_one_is_told_who_holds_it() {
        let path = tempdir().unwrap();
        let first = Folder::open(path.path()).unwrap();
        let error = Folder::open(path.path()).unwrap_err();
        let expected =
            format!("{} is in use by another process (pid {})", path.path().display(), std::process::id());
        assert_eq!(error.to_string(), expected);
        drop(first);
        Folder::open(path.path()).unwrap();
    }

    #[test]
    fn a_newer_format_is_refused() {
        let path = tempdir().unwrap();
        drop(Folder::open(path.path()).unwrap());
        fs::write(path.path().join(FORMAT), "onlooker-folder 7 and more\n").unwrap();
        let error = Folder::open(path.path()).unwrap_err();
        let expected = "has format version 7, and this program knows versions up to 1: use the newer program";
        assert!(error.to_string().ends_with(expected), "{error}");
        assert_eq!(fs::read_to_string(path.path().join(FORMAT)).unwrap(), "onlooker-folder 7 and more\n");
    }

    #[test]
    fn a_strangers_folder_is_refused_and_left_alone() {
        let path = tempdir().unwrap();
        fs::write(path.path().join("thesis.tex"), "hard work").unwrap();
        let error = Folder::open(path.path()).unwrap_err();
        assert!(error.to_string().ends_with("it is not a folder of Onlooker"), "{error}");
        let names: Vec<_> = fs::read_dir(path.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["thesis.tex"]);
    }

    #[test]
    fn a_format_that_cannot_be_read_is_refused() {
        let path = tempdir().unwrap();
        for text in ["", "onlooker-folder", "onlooker-folder one", "something 1", "\u{0}\u{0}"] {
            fs::write(path.path().join(FORMAT), text).unwrap();
            let error = Folder::open(path.path()).unwrap_err();
            assert!(
                error.to_string().ends_with("FORMAT does not name a format version"),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn a_file_is_no_folder() {
        let path = tempdir().unwrap();
        let file = path.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = Folder::open(&path).unwrap_err();
            assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
        }
    }
}
