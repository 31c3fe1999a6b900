//! The file of `--html`: whether it can be written is found out before a run, not after it.
//!
//! The page is written beside its place and then moved there, so that no reader sees half of it.
//! An older report stays until the new one is whole. The crate tempfile would bring two packages
//! for the name of the draft.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::Failure;

/// A place for a page.
pub(super) struct Page {
    path: PathBuf,
    /// Where it is written.
    draft: PathBuf,
}

impl Page {
    /// Makes sure that a page can be written to `path`.
    pub(super) fn prepare(path: &Path) -> Result<Page, Failure> {
        let cannot = |reason: &str| failure(path, reason);
        if path.is_dir() {
            return Err(cannot("it is a directory: name a file in it"));
        }
        let name = path.file_name().ok_or_else(|| cannot("it names no file"))?;
        let draft = format!(".{}.{}.tmp", name.to_string_lossy(), process::id());
        let page = Page { path: path.to_owned(), draft: path.with_file_name(draft) };
        // It is not left there meanwhile: a run that is killed would leave it for good.
        let tried = File::create_new(&page.draft).and_then(|_| fs::remove_file(&page.draft));
        tried.map_err(|error| cannot(&error.to_string()))?;
        Ok(page)
    }

    /// Puts the page in its place.
    pub(super) fn write(&self, html: &str) -> Result<(), Failure> {
        let written = self.write_draft(html).and_then(|()| fs::rename(&self.draft, &self.path));
        written.map_err(|error| {
            // The first error is the one to tell of.
            let _ = fs::remove_file(&self.draft);
            failure(&self.path, &error.to_string())
        })
    }

    fn write_draft(&self, html: &str) -> io::Result<()> {
        File::create_new(&self.draft)?.write_all(html.as_bytes())
    }
}

fn failure(path: &Path, reason: &str) -> Failure {
    Failure::Failed(format!("the report cannot be written to {}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_replaced_and_nothing_is_left_behind() {
        let directory = std::env::temp_dir().join(format!("stentor-page-{}", process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("report.html");
        fs::write(&path, "old").unwrap();
        let page = Page::prepare(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        page.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        let error = Page::prepare(&directory).err().unwrap();
        assert!(error.to_string().contains("name a file in it"), "{error}");
        fs::remove_dir_all(&directory).unwrap();
        let error = page.write("newer").unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_found_before_the_run() {
        for path in ["/no-such-directory/report.html", "/proc/report.html", "/", ".."] {
            assert!(Page::prepare(Path::new(path)).is_err(), "{path}");
        }
    }
}
