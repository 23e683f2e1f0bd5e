//! What the workspace's crates import, as cargo sees it, and which sources name an adapter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Node, PackageId};

/// The facts that the rules are about.
#[derive(Debug, Default)]
pub(crate) struct House {
    pub(crate) crates: Vec<Crate>,
    /// Sources of the executable that name an adapter: path below the workspace, and the name.
    pub(crate) namings: Vec<(String, String)>,
}

/// One crate of the workspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Its folder below the workspace's root, for example `lib/event`.
    pub(crate) folder: String,
    /// What its `Cargo.toml` names for the crate itself and its build script.
    pub(crate) imports: BTreeSet<String>,
    /// What it names for tests, benches and examples alone.
    pub(crate) test_imports: BTreeSet<String>,
    /// All that is linked into it, directly or not, with every feature on.
    pub(crate) tree: BTreeSet<String>,
}

impl House {
    /// Reads the workspace at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut command = MetadataCommand::new();
        command.manifest_path(root.join("Cargo.toml")).features(CargoOpt::AllFeatures);
        let metadata = command.exec().context("cannot read cargo metadata")?;
        let nodes: BTreeMap<&PackageId, &Node> =
            metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node)).collect();
        let mut crates = Vec::new();
        for package in metadata.workspace_packages() {
            let folder =
                package.manifest_path.parent().and_then(|f| f.strip_prefix(&metadata.workspace_root).ok());
            let named = |test: bool| {
                let of_kind =
                    package.dependencies.iter().filter(|d| (d.kind == DependencyKind::Development) == test);
                of_kind.map(|dependency| dependency.name.clone()).collect()
            };
            crates.push(Crate {
                name: package.name.to_string(),
                folder: folder.context("a member lies outside the workspace")?.to_string(),
                imports: named(false),
                test_imports: named(true),
                tree: tree(&metadata, &nodes, &package.id),
            });
        }
        let adapters: Vec<String> = crates
            .iter()
            .filter(|c| c.folder.starts_with("adapters/"))
            .map(|c| c.name.replace('-', "_"))
            .collect();
        Ok(Self { crates, namings: namings(root, &adapters)? })
    }
}

/// Everything that is linked into `start`; tests' dependencies are left out, its own and others'.
fn tree(metadata: &Metadata, nodes: &BTreeMap<&PackageId, &Node>, start: &PackageId) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let linked =
            dependencies.filter(|d| d.dep_kinds.iter().any(|k| k.kind != DependencyKind::Development));
        open.extend(linked.map(|d| &d.pkg).filter(|pkg| reached.insert(*pkg)));
    }
    reached.into_iter().map(|id| metadata[id].name.to_string()).collect()
}

fn namings(root: &Path, adapters: &[String]) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for file in rust_files(&root.join("onlooker/src"))? {
        let text = fs::read_to_string(&file)?;
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        found.extend(
            adapters.iter().filter(|name| text.contains(*name)).map(|name| (shown.clone(), name.clone())),
        );
    }
    Ok(found)
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if !folder.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
