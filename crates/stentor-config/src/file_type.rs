//! Media types of files that the settings name.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;

use stentor_io::lock;
use stentor_wire::file_name::content_type;

use crate::Files;

/// The media type of files with an extension, or of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileType {
    /// In lower case.
    name: String,
    content_type: &'static str,
}

impl FileType {
    pub(crate) fn new(name: &str, content_type: &str) -> FileType {
        FileType { name: name.to_ascii_lowercase(), content_type: interned(content_type) }
    }

    /// Whether the file has this name or extension. The name is ASCII.
    fn covers(&self, file: &str) -> bool {
        let file = file.as_bytes();
        let Some(before) = file.len().checked_sub(self.name.len()) else { return false };
        let (before, end) = file.split_at(before);
        matches!(before, [] | [.., b'.']) && end.eq_ignore_ascii_case(self.name.as_bytes())
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.content_type)
    }
}

impl Files {
    /// The media type of the file at this path.
    #[must_use]
    pub fn content_type(&self, path: &str) -> &'static str {
        let file = path.rsplit('/').next().unwrap_or_default();
        let own = self.types.iter().find(|own| own.covers(file));
        own.map_or_else(|| content_type(path), |own| own.content_type)
    }
}

/// The same text for the rest of the process. Heads of cached files refer to it. Each distinct text
/// is kept once, so reloads take no more memory.
fn interned(text: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = lock(&KNOWN);
    if let Some(text) = known.get(text) {
        return text;
    }
    let text: &'static str = Box::leak(Box::from(text));
    known.insert(text);
    text
}

#[cfg(test)]
mod tests {
    use crate::Settings;

    #[test]
    fn settings_name_types() {
        let toml = "[files]\ntypes = ['.TGS=application/x-tgsticker', 'LICENSE=text/plain', \
                    'js=text/x-old', 'tar.gz=application/x-tgz']";
        let settings = Settings::from_toml(toml, "f").unwrap();
        for (path, expected) in [
            ("a/b.tgs", "application/x-tgsticker"),
            ("a/license", "text/plain"),
            ("a.js", "text/x-old"),
            ("license.txt", "text/plain; charset=utf-8"),
            ("tgs", "application/x-tgsticker"),
            ("tgs/x", "application/octet-stream"),
            ("a.tar.gz", "application/x-tgz"),
            ("a.gz", "application/gzip"),
            ("xtgs", "application/octet-stream"),
        ] {
            assert_eq!(settings.files.content_type(path), expected, "{path}");
        }
        for wrong in ["tgs", "=a/b", "a/b=c/d", "a=b\nc", "*=text/plain", "x =a/b", "..x=a/b"] {
            let error = Settings::from_toml(&format!("[files]\ntypes = {wrong:?}"), "f");
            assert!(error.unwrap_err().to_string().contains("EXTENSION=TYPE"), "{wrong}");
        }
    }
}
