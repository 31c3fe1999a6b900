//! Pages point to things that exist: other pages and their headings, files, commands of developers.
//!
//! Commands of `stentor` itself are parsed by its own tests, and what is to be pasted into a
//! configuration is tried end to end (`e2e/pages.rs`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use pages::{Page, fragments, pages, root};
use xtask::source::{expect_none, read};

#[path = "../../crates/stentor/tests/e2e/support/pages.rs"]
#[allow(dead_code, reason = "the other test programs need the rest of it")]
mod pages;

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let headings: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|page| (page.path.as_str(), headings(page))).collect();
    let mut broken = Vec::new();
    let mut count = 0;
    for page in &pages {
        for (line, target) in links(page) {
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file {
                "" => page.path.clone(),
                file => normal(&Path::new(&page.path).with_file_name(file)),
            };
            let has_anchor = || headings.get(path.as_str()).is_some_and(|all| all.contains(anchor));
            if !root().join(&path).exists() || (!anchor.is_empty() && !has_anchor()) {
                broken.push(format!("{}:{line}: {target}", page.path));
            }
        }
    }
    println!("{count} links of {} pages", pages.len());
    assert!(count > 300, "only {count} links");
    expect_none("dead links", broken);
}

/// The package and the tarball have the pages for users, with all that these refer to.
#[test]
fn installed_pages_lead_to_installed_files() {
    let docs = read("packaging/debian/stentor.docs");
    let install = read("packaging/debian/stentor.install");
    let installed = install.lines().filter_map(|line| line.split_once(" usr/share/doc/stentor/"));
    let mut shipped: Vec<&str> = docs.lines().collect();
    for (file, directory) in installed {
        assert_eq!(Path::new(file).parent(), Some(Path::new(directory)), "links would not hold");
        shipped.push(file);
    }
    let tarball = read("xtask/src/dist/manual.rs");
    let is_packed = |path: &&&str| tarball.contains(&format!("\n    \"{path}\",\n"));
    let absent = shipped.iter().filter(|path| !is_packed(path)).map(|path| (*path).to_owned());
    expect_none("installed by the package, and not in the tarball", absent.collect());
    let is_for_users = |page: &&Page| page.path.starts_with("docs/") || page.path == "README.md";
    let mut broken = Vec::new();
    for page in pages().iter().filter(is_for_users) {
        for (line, target) in links(page) {
            let file = target.split('#').next().unwrap_or_default();
            let path = normal(&Path::new(&page.path).with_file_name(file));
            if !file.is_empty()
                && !shipped.iter().any(|shipped| Path::new(&path).starts_with(shipped))
            {
                broken.push(format!("{}:{line}: {target}", page.path));
            }
        }
    }
    expect_none("links of pages for users to what is not shipped", broken);
}

#[test]
fn every_fragment_has_a_language() {
    let known = |language: &str| LANGUAGES.contains(&language);
    let all = pages().into_iter().flat_map(|page| page.fragments());
    let unknown = all.filter(|fragment| !known(&fragment.language));
    let unknown = unknown.map(|fragment| format!("{}: {:?}", fragment.place, fragment.language));
    expect_none("fragments in a language that no test knows", unknown.collect());
}

#[test]
fn every_image_has_the_tag_that_is_made() {
    let tag = format!("stentor:{}", env!("CARGO_PKG_VERSION"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in
        ["packaging/kubernetes.yaml", "packaging/compose.yaml", "packaging/cluster/compose.yaml"]
    {
        for line in read(path).lines().filter_map(|line| line.trim().strip_prefix("image: ")) {
            count += usize::from(line == tag);
            if line.starts_with("stentor") && line != tag {
                wrong.push(format!("{path}: {line}"));
            }
        }
    }
    assert!(count >= 3, "only {count} images");
    for page in pages() {
        let numbered = page.text.split("stentor:").skip(1).filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            Some(rest[..end].trim_end_matches('.')).filter(|version| version.contains('.'))
        });
        let others = numbered.filter(|version| *version != env!("CARGO_PKG_VERSION"));
        wrong.extend(others.map(|version| format!("{}: stentor:{version}", page.path)));
    }
    expect_none(&format!("images that are not {tag}"), wrong);
}

#[test]
fn every_command_of_developers_exists() {
    let commands: BTreeSet<String> =
        fragments(&["sh", "console"]).iter().flat_map(|fragment| fragment.commands()).collect();
    let mut wrong = Vec::new();
    let mut helps = BTreeMap::new();
    let mut count = 0;
    for command in &commands {
        let command = command.split(" # ").next().unwrap_or_default();
        // In front of it there may be variables, or a directory to change to.
        let words: Vec<&str> = command.trim_end_matches(')').split_whitespace().collect();
        let Some(at) = words.iter().position(|word| *word == "cargo" || word.contains('/')) else {
            continue;
        };
        let (program, args) = (words[at], &words[at + 1..]);
        let result = match program {
            "cargo" => cargo(args),
            bench if bench.starts_with("bench/") || bench.starts_with("hostile/") => {
                measurement(bench, args, &mut helps)
            }
            _ => continue,
        };
        count += 1;
        wrong.extend(result.err().map(|reason| format!("{command}: {reason}")));
    }
    println!("{count} commands of cargo, bench/ and hostile/");
    assert!(count > 50, "only {count} commands");
    expect_none("commands that do not work", wrong);
}

/// Whether the packages, examples and tasks exist that a line of cargo names.
fn cargo(args: &[&str]) -> Result<(), String> {
    let after = |flag: &str| {
        let at = args.iter().position(|arg| *arg == flag)?;
        args.get(at + 1).copied()
    };
    if args.first() == Some(&"xtask") {
        let usage = read("xtask/src/main.rs");
        let is_known = |arg: &&str| usage.contains(&format!("cargo xtask {arg}"));
        let flags = args.iter().filter(|arg| arg.starts_with("--"));
        let unknown = args[1..].iter().take(1).find(|arg| !is_known(arg));
        let unknown = unknown.or(flags.into_iter().find(|flag| !usage.contains(**flag)));
        return unknown.map_or(Ok(()), |arg| Err(format!("xtask has no {arg}")));
    }
    let package =
        after("-p").map(|name| format!("crates/{name}")).or(after("--path").map(Into::into));
    let directory = package.unwrap_or_else(|| "crates/stentor".to_owned());
    if !root().join(&directory).join("Cargo.toml").is_file() {
        return Err(format!("there is no {directory}"));
    }
    if let Some(example) = after("--example") {
        let file = root().join(&directory).join(format!("examples/{example}.rs"));
        return if file.is_file() { Ok(()) } else { Err(format!("no {}", file.display())) };
    }
    if args.first() == Some(&"fuzz") {
        let target = args.get(2).copied().unwrap_or_default();
        let is_there = read("fuzz/Cargo.toml").contains(&format!("name = \"{target}\""));
        return if is_there { Ok(()) } else { Err(format!("there is no target {target}")) };
    }
    Ok(())
}

/// Whether a measurement knows what it is given, by its own `--help`, which `helps` keeps.
fn measurement<'a>(
    program: &'a str,
    args: &[&'a str],
    helps: &mut BTreeMap<Vec<&'a str>, String>,
) -> Result<(), String> {
    let mut text = help(vec![program], helps)?;
    if program.ends_with("/run") {
        text += &help([&[program], &args[..args.len().min(1)]].concat(), helps)?;
    }
    let mut is_value = false;
    for arg in args {
        let is_name = arg.chars().all(|c| c.is_ascii_lowercase() || "-0123456789".contains(c));
        // Names of the scripts of tlsfuzzer are in a checkout that is not here.
        let is_foreign = args[0] == "tls-suites" && !arg.starts_with("--");
        let follows_flag = std::mem::replace(&mut is_value, arg.starts_with("--"));
        if is_name && !is_foreign && !follows_flag && !text.contains(arg) {
            return Err(format!("its help does not name {arg}"));
        }
    }
    Ok(())
}

/// The output of a program with `--help`.
fn help<'a>(
    command: Vec<&'a str>,
    helps: &mut BTreeMap<Vec<&'a str>, String>,
) -> Result<String, String> {
    if !helps.contains_key(&command) {
        let mut process = Command::new(root().join(command[0]));
        let output = process.args(&command[1..]).arg("--help").current_dir(root()).output();
        let output = output.map_err(|error| format!("{command:?}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{command:?} is refused"));
        }
        helps.insert(command.clone(), String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Ok(helps[&command].clone())
}

/// The targets of the links of a page, with their lines. Other servers are not asked.
fn links(page: &Page) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (i, line) in without_code(&page.prose()).lines().enumerate() {
        let markdown = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let html = ["src=\"", "href=\"", "srcset=\""].into_iter().flat_map(|attribute| {
            line.split(attribute).skip(1).filter_map(|rest| rest.split('"').next())
        });
        let here = markdown.chain(html).filter(|target| !target.contains("://"));
        found.extend(here.map(|target| (i + 1, target.to_owned())));
    }
    found
}

/// A text without what stands between backticks.
fn without_code(text: &str) -> String {
    let line = |line: &str| line.split('`').step_by(2).collect::<Vec<_>>().join("``");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The anchors of a page, made of its headings as GitHub does.
fn headings(page: &Page) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in page.prose().lines().filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let is_kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let anchor: String = title.chars().filter(is_kept).collect::<String>().replace(' ', "-");
        let again = (1..).map(|n| format!("{anchor}-{n}"));
        let mut names = std::iter::once(anchor.clone()).chain(again);
        found.insert(names.find(|name| !found.contains(name)).unwrap());
    }
    found
}

/// A path without `..` in it.
fn normal(path: &Path) -> String {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.display().to_string()
}

#[test]
fn links_and_headings_are_found() {
    let text = "# A `b`: c_d\n\n[x](y.md#z), `[no](no)` <img src=\"p.png\">\n\n\
                ```sh\n# not\n[n](o)\n```\n## A b c_d\n";
    let page = Page { path: "p".into(), text: text.into() };
    assert_eq!(links(&page), [(3, "y.md#z".into()), (3, "p.png".into())]);
    assert_eq!(headings(&page), ["a-b-c_d".into(), "a-b-c_d-1".into()].into());
    assert_eq!(normal(Path::new("docs/http/../a.md")), "docs/a.md");
    assert!(cargo(&["xtask", "dist", "--check"]).is_ok() && cargo(&["xtask", "dost"]).is_err());
    assert!(cargo(&["run", "-p", "stentor-hub", "--example", "none"]).is_err());
}

/// Languages of fragments. Each but `text` is tried: `console` and `sh` by the tests above and of
/// the command line, the others end to end.
const LANGUAGES: &[&str] = &[
    "console", "haproxy", "html", "ini", "js", "json", "nats", "nginx", "python", "sh", "text",
    "toml", "yaml",
];
