//! The demo's page, as a file: the server serves it as it would any site.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process;
use std::time::SystemTime;

/// A directory of the demo's own, which goes when the demo does.
#[derive(Debug)]
pub(super) struct Site {
    directory: PathBuf,
    written_at: SystemTime,
}

impl Site {
    /// Writes the page.
    ///
    /// # Errors
    /// Nothing can be written where temporary files go (`TMPDIR`).
    pub(super) fn write() -> io::Result<Site> {
        let directory = std::env::temp_dir().join(format!("stentor-demo-{}", process::id()));
        // One of an earlier process of this number, which did not come to its end, would be in
        // the way; one of somebody else's cannot be removed, and is an error.
        let _ = fs::remove_dir_all(&directory);
        DirBuilder::new().mode(0o700).create(&directory)?;
        let mut site = Site { directory, written_at: SystemTime::UNIX_EPOCH };
        fs::create_dir(site.root())?;
        let page = site.root().join("index.html");
        fs::write(&page, PAGE)?;
        site.written_at = fs::metadata(page)?.modified()?;
        Ok(site)
    }

    /// What is served.
    pub(super) fn root(&self) -> PathBuf {
        self.directory.join("site")
    }

    /// Where a certificate of the demo's own goes.
    pub(super) fn certificate(&self) -> PathBuf {
        self.directory.join("certificate.pem")
    }

    /// Its key, which is not beneath the root.
    pub(super) fn key(&self) -> PathBuf {
        self.directory.join("key.pem")
    }

    /// When the page was written: its `Last-Modified`.
    pub(super) fn written_at(&self) -> SystemTime {
        self.written_at
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

pub(super) const PAGE: &str = include_str!("page.html");
