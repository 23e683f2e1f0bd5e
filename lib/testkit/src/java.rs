//! Servers that run on a JVM: their archives by Maven, once a machine, and the flags that make them start fast.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::install::{self, Tool, exclusive};
use crate::process::Program;

/// How a JVM is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jvm {
    /// Limit of the heap, MiB.
    pub heap_mb: u32,
    /// Stays with the first, quick compiler: less CPU over a test's few seconds, more over a longer life.
    pub short_lived: bool,
}

impl Jvm {
    /// For a server that a test starts and kills.
    pub const fn for_test(heap_mb: u32) -> Self {
        Self { heap_mb, short_lived: true }
    }

    /// For a server that stays up: fully optimised after its first minute.
    pub const fn lasting(heap_mb: u32) -> Self {
        Self { heap_mb, short_lived: false }
    }

    fn flags(self) -> Vec<String> {
        let mut flags = vec!["-XX:+UseSerialGC".to_owned(), format!("-Xmx{}m", self.heap_mb)];
        if self.short_lived {
            flags.push("-XX:TieredStopAtLevel=1".to_owned());
        }
        flags
    }
}

/// A server's Java archives on this machine.
#[derive(Debug)]
pub(crate) struct Library {
    folder: PathBuf,
    java: PathBuf,
    class_path: OsString,
}

impl Library {
    /// The library that the Maven project `pom` describes, fetched if this machine does not have it.
    /// `finish` runs once after the fetching and may leave files in [`Library::folder`].
    ///
    /// # Errors
    /// Maven or Java cannot be installed, an archive cannot be fetched, or `finish` fails.
    pub(crate) fn fetch(name: &str, pom: &str, finish: impl FnOnce(&Self) -> Result<()>) -> Result<Self> {
        let java = java17()?;
        let cache = cache_folder();
        fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
        let folder = cache.join(name);
        let _only_one_fetches = exclusive(&cache.join(format!("{name}.lock")))?;
        // Written last: a folder with it is complete, and is of this very project.
        let done = folder.join("pom.xml");
        if fs::read_to_string(&done).is_ok_and(|have| have == pom) {
            return Self::open(folder, java);
        }
        install::ensure(&[install::MAVEN])?;
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        eprintln!("fetching {name} into {}", folder.display());
        maven(&folder, pom)?;
        let library = Self::open(folder, java)?;
        finish(&library)?;
        fs::write(done, pom)?;
        Ok(library)
    }

    fn open(folder: PathBuf, java: PathBuf) -> Result<Self> {
        let mut archives: Vec<PathBuf> =
            fs::read_dir(folder.join("lib"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        // The archive of classes is good for exactly the class path that it was made with.
        archives.sort();
        let class_path = std::env::join_paths(archives)?;
        Ok(Self { folder, java, class_path })
    }

    /// Where the library lies, and what `finish` left.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A JVM that runs `main` in `folder`.
    pub(crate) fn program(
        &self,
        name: &str,
        jvm: Jvm,
        flags: &[String],
        main: &[&str],
        folder: &Path,
    ) -> Program {
        let mut args: Vec<OsString> = jvm.flags().into_iter().map(Into::into).collect();
        // An archive that this JVM cannot use is left aside by it: slower, nothing else.
        if self.archive().exists() {
            args.push(format!("-XX:SharedArchiveFile={}", self.archive().display()).into());
        }
        args.extend(flags.iter().map(Into::into));
        args.extend(["-cp".into(), self.class_path.clone()]);
        args.extend(main.iter().map(Into::into));
        Program {
            name: name.to_owned(),
            executable: self.java.clone().into(),
            args,
            folder: folder.to_owned(),
            log: folder.join("server.log"),
        }
    }

    /// The classes that a start loads, prepared for the next starts.
    fn archive(&self) -> PathBuf {
        self.folder.join("classes.jsa")
    }

    /// Makes `program` leave the archive of classes behind when it ends on SIGTERM.
    pub(crate) fn archiving(&self, mut program: Program) -> Program {
        program.args.insert(0, format!("-XX:ArchiveClassesAtExit={}", self.archive().display()).into());
        program
    }
}

/// `$ONLOOKER_SERVERS_DIR`, else `servers` in the target folder of this workspace.
fn cache_folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let target = || set("CARGO_TARGET_DIR").unwrap_or_else(|| workspace().join("target"));
    set("ONLOOKER_SERVERS_DIR").unwrap_or_else(|| target().join("servers"))
}

/// The `server.version` that a pom names.
pub(crate) const fn pom_version(pom: &str) -> &str {
    let (open, close) = (b"<server.version>", b"</server.version>");
    let (bytes, mut start) = (pom.as_bytes(), 0);
    while !starts_with(bytes, start, open) {
        start += 1;
    }
    start += open.len();
    let mut end = start;
    while !starts_with(bytes, end, close) {
        end += 1;
    }
    pom.split_at(end).0.split_at(start).1
}

/// Out of bounds where `bytes` has no `word` from `at` on: a pom without a version does not compile.
const fn starts_with(bytes: &[u8], at: usize, word: &[u8]) -> bool {
    let mut i = 0;
    while i < word.len() {
        if bytes[at + i] != word[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// The root of this workspace, where it was built.
pub fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

fn maven(folder: &Path, pom: &str) -> Result<()> {
    let project = folder.join("fetch.xml");
    fs::write(&project, pom)?;
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f"]).arg(project).arg("package");
    maven.arg(format!("-Dserver.lib={}", folder.join("lib").display()));
    maven.arg(format!("-Dserver.build={}", folder.join("build").display()));
    let output = maven.output().context("cannot run mvn")?;
    if !output.status.success() {
        bail!("mvn package failed: {}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(())
}

/// A Java 17, the one version that both servers support: the PATH's, another of this machine, or installed.
fn java17() -> Result<PathBuf> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(java) = FOUND.get() {
        return Ok(java.clone());
    }
    let java = match find_java17() {
        Some(java) => java,
        None => {
            let _only_one_installs = install::apt_lock()?;
            install::apt_install(&[install::JAVA.package])?;
            find_java17().context("no Java 17 on this machine even after its package was installed")?
        }
    };
    Ok(FOUND.get_or_init(|| java).clone())
}

fn find_java17() -> Option<PathBuf> {
    let debian =
        fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|e| e.path().join("bin/java"));
    Tool::find(&install::JAVA).into_iter().chain(debian).find(|java| {
        let output = Command::new(java).arg("-version").output();
        output.is_ok_and(|o| String::from_utf8_lossy(&o.stderr).contains("version \"17."))
    })
}
