//! The Debian package, by debhelper: unlike cargo-deb it knows how a unit, a configuration file and
//! the pages of a manual are installed, upgraded, removed and purged. The user is the unit's
//! `DynamicUser`. The maintainer's name is in `packaging/debian/control` alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Arch, Release, copy, fresh, manual, output, write};
use crate::{root, run};

/// Makes the package in a directory of its own, and moves it to the others.
pub(super) fn make(release: &Release, arch: &Arch, binary: &Path) -> Result<(), String> {
    let dir = release.work.join(format!("debian-{}", arch.name)).join("stentor");
    fresh(&dir)?;
    manual::copy_to(release, &dir)?;
    copy(binary, &dir.join("stentor"))?;
    let debian = dir.join("debian");
    copy(&root().join("packaging/debian"), &debian)?;
    copy(&dir.join("stentor.service"), &debian.join("stentor.service"))?;
    write(&debian.join("changelog"), &changelog(release)?)?;
    let built = ["--build=binary", "--no-sign", "--no-check-builddeps"];
    run(Command::new("dpkg-buildpackage")
        .args(built)
        .args(["--host-arch", arch.name])
        .env("SOURCE_DATE_EPOCH", &release.epoch)
        .current_dir(&dir))?;
    let package = format!("stentor_{}-1_{}.deb", release.version, arch.name);
    copy(&dir.with_file_name(&package), &release.out.join(&package))
}

/// One entry for this version; what has changed is in the changelog for users.
fn changelog(release: &Release) -> Result<String, String> {
    let at = format!("--date=@{}", release.epoch);
    let date = output(Command::new("date").args(["--utc", "--rfc-email", &at]))?;
    let control = root().join("packaging/debian/control");
    let control = fs::read_to_string(&control).map_err(|error| error.to_string())?;
    let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    let maintainer = maintainer.ok_or("packaging/debian/control names no maintainer")?;
    Ok(format!(
        "stentor ({}-1) unstable; urgency=medium\n\n  * What has changed is in changelog.gz.\n\n \
         -- {maintainer}  {date}\n",
        release.version
    ))
}
