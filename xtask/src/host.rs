//! The host: which programs there are, and how those that are missing come.
//!
//! Libraries of Python and modules of nginx count as programs here, under the names of their
//! packages. They are looked for where Debian puts them: what another Python may have brought along
//! is not relied upon.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{root, run_quietly};

/// Where a program is.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Makes sure that the programs are there: installs Debian's packages where that is possible, and
/// says in one line what to install where it is not. Returns whether all are there.
pub(crate) fn prepare(programs: &[&str]) -> bool {
    let absent = missing(programs);
    if absent.is_empty() {
        return true;
    }
    let packages: Vec<&str> = absent.iter().map(|program| package(program)).collect();
    let packages = packages.join(" ");
    if is_root() && find("apt-get").is_some() {
        println!("installing {packages}");
        let install = "apt-get install --yes --quiet --no-install-recommends";
        match apt(&format!("apt-get update --quiet && {install} {packages}"), &root()) {
            Ok(()) if missing(programs).is_empty() => return true,
            Ok(()) => {}
            Err(reason) => println!("{reason}"),
        }
    }
    println!("programs are missing: apt-get install {packages}");
    false
}

/// Runs a line of shell with commands of Debian's package manager, in this directory.
fn apt(line: &str, dir: &Path) -> Result<(), String> {
    let mut shell = Command::new("sh");
    run_quietly(shell.args(["-c", line]).current_dir(dir).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn missing<'a>(programs: &[&'a str]) -> Vec<&'a str> {
    programs.iter().copied().filter(|program| !is_installed(program)).collect()
}

fn is_installed(program: &str) -> bool {
    if program == "python3-venv" {
        // Debian's Python has the module `venv` without this package, and it fails.
        let output = Command::new("python3").args(["-c", "import ensurepip"]).output();
        return output.is_ok_and(|output| output.status.success());
    }
    if let Some(library) = program.strip_prefix("python3-") {
        return Path::new("/usr/lib/python3/dist-packages").join(library).is_dir();
    }
    match program {
        "libnginx-mod-nchan" => Path::new("/usr/lib/nginx/modules/ngx_nchan_module.so").is_file(),
        _ => find(program).is_some(),
    }
}

/// The package of a program in Debian.
fn package(program: &str) -> &str {
    match program {
        "chromedriver" => "chromium-driver",
        "dh" => "debhelper",
        "go" => "golang-go",
        "ip" => "iproute2",
        "node" => "nodejs",
        "npx" => "npm",
        "qemu-aarch64-static" => "qemu-user-static",
        "readelf" => "binutils",
        "runsv" => "runit",
        "supervisord" => "supervisor",
        "systemd-analyze" => "systemd",
        "systemd-nspawn" => "systemd-container",
        other => other,
    }
}

/// Where the programs of Prometheus are: those of Debian's package, which is unpacked and not
/// installed, for it would start a service on this host.
pub(crate) fn prometheus() -> Result<PathBuf, String> {
    let dir = root().join("target/clients/prometheus");
    let programs = dir.join("usr/bin");
    if !programs.join("promtool").is_file() {
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let download = "apt-get download --quiet prometheus";
        let line = format!("{download} || (apt-get update --quiet && {download})");
        apt(&format!("({line}) && dpkg-deb -x *.deb . && rm *.deb"), &dir)?;
    }
    Ok(programs)
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
