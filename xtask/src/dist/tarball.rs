//! The tarball: for any Linux, to be unpacked anywhere.

use std::fs;
use std::path::Path;

use super::{Arch, Release, copy, manual};

/// Packs the binary with its manual, completions, licences, unit and configuration.
pub(super) fn make(release: &Release, arch: &Arch, binary: &Path) -> Result<(), String> {
    let archive = release.path(arch, ".tar");
    let name = archive.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let dir = release.work.join(name);
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    manual::copy_to(release, &dir)?;
    copy(binary, &dir.join("stentor"))?;
    release.tar_gz(&release.work, &[name], &archive)
}
