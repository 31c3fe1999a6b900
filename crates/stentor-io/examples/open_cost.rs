//! The cost of finding and opening a file that is not in memory: microseconds, by how deep it is.
//!
//! `cargo run --release -p stentor-io --example open_cost`. The kernel resolves the paths. Where a
//! sandbox forbids `openat2`, the server walks them: run it behind
//! `python3 crates/stentor/tests/e2e/python/no_openat2.py` to see that. The least of several
//! rounds is printed, since everything that disturbs a round makes it longer.

use std::path::Path;
use std::time::Instant;
use std::{env, fs, io, process};
use stentor_io::{Directory, Found, Symlinks};

fn main() -> io::Result<()> {
    let root = env::temp_dir().join(format!("stentor-open-cost-{}", process::id()));
    let result = measure(&root);
    fs::remove_dir_all(&root)?;
    result
}

fn measure(root: &Path) -> io::Result<()> {
    let paths = ["f", "a/f", "a/b/c/f", "a/b/c/d/e/g/h/f"];
    for path in paths {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, "content")?;
    }
    std::os::unix::fs::symlink("a/b/c", root.join("link"))?;
    let directory = Directory::open(root)?;
    let way = if directory.is_resolved_by_kernel() { "by openat2" } else { "by walking" };
    for (path, symlinks) in paths
        .map(|path| (path, Symlinks::Refused))
        .into_iter()
        .chain([("link/f", Symlinks::Followed)])
    {
        println!("{way:<12} {path:<18} {:>6.2} us", least_us(&directory, path, symlinks)?);
    }
    Ok(())
}

/// Microseconds per file in the fastest of several rounds.
fn least_us(directory: &Directory, path: &str, symlinks: Symlinks) -> io::Result<f64> {
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..FILES {
            let Found::File(_) = directory.find(path, symlinks)? else {
                return Err(io::ErrorKind::NotFound.into());
            };
        }
        least = least.min(began.elapsed().as_secs_f64() * 1e6 / f64::from(FILES));
    }
    Ok(least)
}

const ROUNDS: u32 = 20;
const FILES: u32 = 2_000;
