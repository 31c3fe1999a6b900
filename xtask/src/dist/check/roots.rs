//! Roots of other distributions, to try artefacts in: made once, and kept beside the builds.
//!
//! Each step gets a copy that vanishes, so nothing changes them. Remove `target/dist-build/roots`,
//! and the next check makes them from scratch.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::{Release, fresh, output};
use crate::run;

/// A distribution in which an artefact is tried.
pub(super) struct Distribution {
    pub(super) name: &'static str,
    pub(super) source: Source,
}

/// From where the root of a distribution comes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Source {
    /// Debian's archive has it as a suite.
    Suite,
    /// It is an image, under a short name that podman knows.
    Image,
}

/// The oldest and the newest Debian that get security updates, one with musl and one with RPM.
pub(super) const DISTRIBUTIONS: &[Distribution] = &[
    Distribution { name: "bullseye", source: Source::Suite },
    Distribution { name: "trixie", source: Source::Suite },
    Distribution { name: "alpine", source: Source::Image },
    Distribution { name: "fedora", source: Source::Image },
];

impl Distribution {
    /// Returns the directory of its root, and makes it first if that has not been done.
    pub(super) fn root(&self, release: &Release) -> Result<PathBuf, String> {
        let roots = release.kept.join("roots");
        let dir = roots.join(self.name);
        if dir.is_dir() {
            return Ok(dir);
        }
        // Renamed when it is whole: what was interrupted is no root.
        let unfinished = roots.join("unfinished");
        fresh(&unfinished)?;
        match self.source {
            Source::Suite => self.bootstrap(&unfinished)?,
            Source::Image => self.export(release, &unfinished)?,
        }
        fs::rename(&unfinished, &dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(dir)
    }

    /// With sudo, for the README's line has it.
    fn bootstrap(&self, dir: &Path) -> Result<(), String> {
        let small = ["--quiet", "--variant=apt", "--format=directory", "--include=sudo"];
        output(Command::new("mmdebstrap").args(small).arg(self.name).arg(dir)).map(drop)
    }

    /// The files of an image.
    fn export(&self, release: &Release, dir: &Path) -> Result<(), String> {
        let storage = release.work.join("images");
        // Podman refuses a path of more than 50 characters here.
        let state = env::temp_dir().join(format!("stentor-images-{}", std::process::id()));
        let podman = || {
            let mut podman = Command::new("podman");
            podman.arg("--root").arg(&storage).arg("--runroot").arg(&state);
            podman.args(["--storage-driver", "vfs"]);
            podman
        };
        let archive = release.work.join("root.tar");
        let exported = output(podman().args(["pull", "--quiet", self.name]))
            .and_then(|image| output(podman().arg("create").arg(image)))
            .and_then(|id| run(podman().args(["export", "--output"]).arg(&archive).arg(id)));
        let _ = fs::remove_dir_all(&state);
        exported?;
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(dir))
    }
}
