//! The project's pages as their readers take them: fragments to paste, commands to type.
//!
//! Three test programs look at the same pages: the command's own tests parse what is typed, the
//! end-to-end tests try what is pasted, and `xtask` follows links. Each includes this file.

use std::fs;
use std::path::{Path, PathBuf};

/// A block of a page between fences.
pub(crate) struct Fragment {
    /// The page and the line, to be named in a failure.
    pub(crate) place: String,
    /// The word behind the fence: `toml`, `console`.
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Fragment {
    /// The commands that it tells to type, each in one line. A `console` also shows their
    /// output. In a script each line is a command.
    pub(crate) fn commands(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let begin = match self.language.as_str() {
                "console" => line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")),
                "sh" if !line.starts_with('#') && !line.is_empty() => Some(line),
                _ => None,
            };
            let Some(begin) = begin else { continue };
            let mut command = begin.to_owned();
            while let Some(head) = command.strip_suffix('\\') {
                command = head.to_owned() + lines.next().unwrap_or_default().trim_start();
            }
            found.push(command);
        }
        found
    }
}

/// A page: where it is, relative to the root, and what it says.
pub(crate) struct Page {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Page {
    /// All that stands between fences.
    pub(crate) fn fragments(&self) -> Vec<Fragment> {
        let mut found: Vec<Fragment> = Vec::new();
        let mut is_inside = false;
        for (i, line) in self.text.lines().enumerate() {
            if let Some(language) = line.strip_prefix("```") {
                is_inside = !is_inside;
                if is_inside {
                    let place = format!("{}:{}", self.path, i + 1);
                    let language = language.to_owned();
                    found.push(Fragment { place, language, text: String::new() });
                }
            } else if let Some(fragment) = found.last_mut().filter(|_| is_inside) {
                fragment.text += line;
                fragment.text.push('\n');
            }
        }
        found
    }

    /// Its text with empty lines for fragments, so that lines keep their numbers.
    pub(crate) fn prose(&self) -> String {
        let mut is_inside = false;
        let lines = self.text.lines().map(|line| {
            let is_fence = line.starts_with("```");
            is_inside ^= is_fence;
            if is_inside || is_fence { "" } else { line }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().find(|dir| dir.join("Cargo.lock").is_file());
    root.expect("there is a workspace").to_owned()
}

/// Every page for users and for developers.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = PAGES.iter().map(|path| root().join(path)).collect();
    for directory in ["docs", "docs/http"] {
        let entries = fs::read_dir(root().join(directory)).expect("there is documentation");
        let files = entries.map(|entry| entry.expect("it can be listed").path());
        paths.extend(files.filter(|file| file.extension().is_some_and(|kind| kind == "md")));
    }
    paths.sort();
    let page = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a page can be read");
        let path = path.strip_prefix(root()).expect("it is below the root").display().to_string();
        Page { path, text }
    };
    paths.into_iter().map(page).collect()
}

/// All fragments in one of these languages.
pub(crate) fn fragments(languages: &[&str]) -> Vec<Fragment> {
    let all = pages().into_iter().flat_map(|page| page.fragments());
    all.filter(|fragment| languages.contains(&fragment.language.as_str())).collect()
}

/// Pages outside of `docs/`.
const PAGES: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "bench/README.md",
    "clients/js/README.md",
    "crates/stentor-tls/SUITES.md",
    "crates/stentor/tests/autobahn/README.md",
];
