//! Tries what was made: unpacks it, serves from it, installs, upgrades, removes and purges it in
//! roots of other distributions, with and without systemd, and has the tools of others read it.
//!
//! The scripts in `check/` are what a user would type, with the lines by which the README installs.
//! Each has a network of its own, so that it reaches no server of this host by mistake, and what
//! they change vanishes with their mounts. The same scripts try an architecture that is not the
//! host's: `check/emulated.sh` has the kernel run its programs in qemu.

mod readme;
mod roots;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use readme::install_line;
use roots::{DISTRIBUTIONS, Distribution, Source};

use super::{ARCHES, Arch, Release, binary, fresh, output, write};
use crate::{host, root, run, run_quietly, step};

/// Tries what was made. An emulator runs what is not of this host's architecture; only systemd is
/// not tried with it.
pub(super) fn all(release: &Release) -> Result<(), String> {
    if !host::prepare(TOOLS) {
        return Err("the tools above are needed to check".into());
    }
    let native = output(Command::new("dpkg").arg("--print-architecture"))?;
    for arch in ARCHES.iter().filter(|arch| release.path(arch, ".tar.gz").is_file()) {
        let machine = if arch.name == native { Machine::Native } else { Machine::Emulated };
        architecture(&Trial { release, arch, machine })?;
    }
    step("the README's cargo install", || cargo_install(release))?;
    step("the browser client, by tsc --strict", || browser_client(release))?;
    step("the compose files, by docker-compose", || {
        ["compose.yaml", "cluster/compose.yaml"].into_iter().try_for_each(|name| {
            let mut compose = Command::new("docker-compose");
            run(compose.arg("-f").arg(packaging(name)).args(["config", "--quiet"]))
        })
    })?;
    step("the manifests, by kubeconform", || manifests(release))?;
    step("metrics, by promtool", || metrics(release))
}

/// The machine that runs the binaries.
#[derive(PartialEq)]
enum Machine {
    Native,
    Emulated,
}

/// An architecture's artefacts, under test.
struct Trial<'a> {
    release: &'a Release,
    arch: &'a Arch,
    machine: Machine,
}

/// Tries the artefacts of an architecture.
fn architecture(trial: &Trial<'_>) -> Result<(), String> {
    let step = |what: &str, work: &dyn Fn() -> Result<(), String>| {
        step(&format!("{}: {what}", trial.arch.name), work)
    };
    step("the tarball holds a small static binary, and its manual", &|| tarball(trial))?;
    step("the binary serves, is upgraded and killed, and has its values", &|| served(trial))?;
    step("the image is read by skopeo and umoci", &|| image(trial))?;
    step("lintian", &|| {
        let strict = ["--fail-on", "error,warning", "--allow-root"];
        run(Command::new("lintian").args(strict).arg(trial.package()))
    })?;
    for distribution in DISTRIBUTIONS {
        let name = distribution.name;
        step(&format!("the tarball on {name}"), &|| unpacked(trial, distribution))?;
        if distribution.source == Source::Suite {
            step(&format!("the package on {name}, without systemd"), &|| {
                installed(trial, distribution)
            })?;
        }
    }
    step("the image runs", &|| image_runs(trial))?;
    if trial.machine == Machine::Native {
        step("the package under systemd", &|| booted(trial, "booted", 300))?;
        step("upgrades, stops and restarts under systemd", &|| booted(trial, "upgraded", 1200))?;
    }
    Ok(())
}

impl Trial<'_> {
    /// An empty directory of the trial.
    fn dir(&self, name: &str) -> Result<PathBuf, String> {
        let dir = self.release.work.join(format!("{name}-{}", self.arch.name));
        fresh(&dir)?;
        Ok(dir)
    }

    /// Where the tarball is unpacked.
    fn binary(&self) -> PathBuf {
        self.release.work.join(format!("unpacked-{}/stentor", self.arch.name))
    }

    fn package(&self) -> PathBuf {
        let name = format!("stentor_{}-1_{}.deb", self.release.version, self.arch.name);
        self.release.out.join(name)
    }

    /// One of the scripts in `check/`, with mounts and a network of its own, where the kernel runs
    /// the architecture's programs.
    fn script(&self, name: &str) -> Result<Command, String> {
        if self.machine == Machine::Native {
            return Ok(script(&["--net", "--mount"], name));
        }
        let emulator = self.arch.target.split('-').next().unwrap_or_default();
        let mut command = script(&["--mount"], "emulated.sh");
        command.arg(emulator).arg(self.dir("emulated")?);
        command.arg("sh").arg(scripts().join(name));
        Ok(command)
    }

    /// How many seconds there are from an artefact to a page that is live.
    fn seconds(&self) -> &'static str {
        match self.machine {
            Machine::Native => "10",
            Machine::Emulated => "60",
        }
    }
}

/// Static, stripped and small; beside it a manual and completions that can be read.
fn tarball(trial: &Trial<'_>) -> Result<(), String> {
    let dir = trial.dir("unpacked")?;
    let archive = trial.release.path(trial.arch, ".tar.gz");
    run(Command::new("tar").args(["--strip-components=1", "-xzf"]).arg(archive).current_dir(&dir))?;
    let binary = trial.binary();
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

/// Published to, read, followed, upgraded, killed and stopped, on this host.
fn served(trial: &Trial<'_>) -> Result<(), String> {
    let dir = trial.dir("served")?;
    run(trial.script("served.sh")?.arg("/").arg(dir).arg(trial.binary()))
}

/// The same in a distribution, and before it from what is downloaded to the demo's page.
fn unpacked(trial: &Trial<'_>, distribution: &Distribution) -> Result<(), String> {
    let Some((mut script, dir)) = in_root(trial, distribution)? else { return Ok(()) };
    script.arg("sh").arg(scripts().join("unpacked.sh"));
    script.arg(trial.release.path(trial.arch, ".tar.gz")).arg(dir.join("root"));
    script.arg(install_line(trial.release, trial.arch, readme::TAR)?);
    run(script.arg(trial.seconds()))
}

/// Installed, upgraded, removed and purged; a changed configuration outlives all but the last.
fn installed(trial: &Trial<'_>, distribution: &Distribution) -> Result<(), String> {
    let Some((mut script, dir)) = in_root(trial, distribution)? else { return Ok(()) };
    let (package, root) = (trial.package(), dir.join("root"));
    script.arg("sh").arg(scripts().join("packages.sh")).arg(&package).arg(&root);
    script.arg("sh").arg(scripts().join("installed.sh")).arg(package).arg(trial.arch.name);
    script.arg(root).arg(install_line(trial.release, trial.arch, readme::APT)?);
    run(script.arg(trial.seconds()))
}

/// The script that makes a copy of a distribution's root, and the directory where it lies. If there
/// is no such root, it says why.
fn in_root(
    trial: &Trial<'_>,
    distribution: &Distribution,
) -> Result<Option<(Command, PathBuf)>, String> {
    let root = match distribution.root(trial.release) {
        Ok(root) => root,
        Err(reason) => {
            println!("skipped: there is no root of {}: {reason}", distribution.name);
            return Ok(None);
        }
    };
    let dir = trial.dir("root")?;
    let mut script = trial.script("root.sh")?;
    script.arg(root).arg(&dir);
    Ok(Some((script, dir)))
}

/// Read by skopeo, unpacked by umoci, and there is nothing in it but the binary.
fn image(trial: &Trial<'_>) -> Result<(), String> {
    let archive = trial.release.path(trial.arch, ".oci.tar");
    let name = format!("oci-archive:{}", archive.display());
    let seen = output(Command::new("skopeo").args(["inspect", &name]))?;
    let architecture = format!("\"Architecture\": \"{}\"", trial.arch.name);
    expect(seen.contains(&architecture), "the image is of another architecture")?;
    let dir = trial.dir("bundle")?;
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

/// Loaded as the README says, and run by podman: with a store, and without any right.
fn image_runs(trial: &Trial<'_>) -> Result<(), String> {
    run(trial
        .script("image.sh")?
        .arg(&trial.release.out)
        .arg(install_line(trial.release, trial.arch, readme::PODMAN)?)
        .arg(format!("stentor:{}", trial.release.version))
        .arg(trial.dir("podman")?))
}

/// The same with systemd as the first process. The unit is ready when it says so, is reloaded and
/// restarted under requests, and has hardly a right. The service `name` does it, and may
/// take so many seconds.
fn booted(trial: &Trial<'_>, name: &str, seconds: u32) -> Result<(), String> {
    let dir = trial.dir(&format!("machine-{name}"))?;
    let said = trial.dir(&format!("said-{name}"))?;
    let mut script = script(&["--mount"], "root.sh");
    script.arg("/").arg(&dir);
    script.arg("sh").arg(scripts().join("packages.sh")).arg(trial.package()).arg(dir.join("root"));
    script.args(["timeout", &seconds.to_string(), "systemd-nspawn", "--quiet"]);
    script.args(["--register=no", "--keep-unit"]);
    script.args(["--link-journal=no", "--private-network", "--console=pipe", "--boot"]);
    script.arg("--directory").arg(dir.join("root"));
    script.arg(format!("--bind={}:/said", said.display()));
    let (unit, file) = (format!("{name}.service"), scripts().join(format!("{name}.service")));
    script.arg(format!("--bind-ro={}:/etc/systemd/system/{unit}", file.display()));
    script.arg(format!("--bind-ro={}:/traffic.py", scripts().join("traffic.py").display()));
    script.args(["--", &format!("--unit={unit}"), "--show-status=false"]);
    let result = run(&mut script);
    let said = fs::read_to_string(said.join("log")).unwrap_or_default();
    println!("{said}");
    if said.is_empty() {
        println!("skipped: no systemd can be booted in a container on this host");
        return Ok(());
    }
    result
}

/// Installed from these sources by the README's line; without optimisation, which takes minutes and
/// is no matter of that line.
fn cargo_install(release: &Release) -> Result<(), String> {
    let dir = release.work.join("cargo-install");
    let line = install_line(release, &ARCHES[0], readme::CARGO)?;
    println!("{line}");
    run(Command::new("sh")
        .args(["-c", &line])
        .current_dir(root())
        .env("CARGO_INSTALL_ROOT", &dir)
        .env("CARGO_TARGET_DIR", release.kept.join("cargo"))
        .envs(CHEAP))?;
    run(Command::new(dir.join("bin/stentor")).arg("--version"))
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
    run_quietly(Command::new("npm").args(install).arg(client).current_dir(&dir))?;
    let strict = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "page.ts"];
    run(Command::new("npx").args(["--no-install", "tsc"]).args(strict).current_dir(&dir))
}

/// kubeconform judges the manifests by the schemas of Kubernetes and of the Prometheus Operator. A
/// package of Python and a module of Go bring these.
fn manifests(release: &Release) -> Result<(), String> {
    let dir = release.kept.join("kubernetes");
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let validate = python_tool(release, "kubernetes-validate", KUBERNETES)?;
    run_quietly(Command::new("go").args(["install", KUBECONFORM]).env("GOBIN", &dir))?;
    let module = ["mod", "download", "-json", OPERATOR];
    let found =
        output(Command::new("go").args(module).current_dir(&dir).env("GOFLAGS", "-mod=mod"))?;
    let operator = found.lines().find_map(|line| line.trim().strip_prefix("\"Dir\": \""));
    let operator = operator.ok_or("go says no directory of a module")?.trim_end_matches("\",");
    let crd = "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml";
    let schemas = dir.join("schemas");
    fresh(&schemas)?;
    let mut make = Command::new(validate.with_file_name("python"));
    make.arg(scripts().join("schemas.py")).arg(format!("{operator}/{crd}")).arg(&schemas);
    run(&mut make)?;
    let names = "{{.ResourceKind}}{{.KindSuffix}}.json";
    let mut kubeconform = Command::new(dir.join("kubeconform"));
    kubeconform.args(["-strict", "-summary", "-schema-location"]);
    kubeconform.arg(format!("{}/{names}", schemas.display()));
    run(kubeconform.arg(packaging("kubernetes.yaml")).arg(packaging("podmonitor.yaml")))
}

/// promtool judges the metrics of the shipped server. Tests judge the rules.
fn metrics(release: &Release) -> Result<(), String> {
    let promtool = host::prometheus()?.join("promtool");
    for arch in ARCHES {
        let metrics = release.work.join(format!("served-{}/metrics", arch.name));
        let Ok(file) = fs::File::open(&metrics) else { continue };
        run(Command::new(&promtool).args(["check", "metrics"]).stdin(file))?;
    }
    Ok(())
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
        run_quietly(Command::new(tools.join("pip")).args(["install", "--quiet", package]))?;
    }
    Ok(tools.join(name))
}

fn expect(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

/// Settings of the profile `release`.
const CHEAP: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
];

const TOOLS: &[&str] = &[
    "crun",
    "curl",
    "docker-compose",
    "go",
    "ip",
    "lintian",
    "mmdebstrap",
    "npx",
    "openssl",
    "podman",
    "qemu-aarch64-static",
    "readelf",
    "skopeo",
    "systemd-nspawn",
    "umoci",
];

/// The size of the binary when this was last set, and five per cent. `cargo xtask sizes` prints
/// where it comes from: the largest parts are the cryptography of TLS and tokens, this server, the
/// standard library, and brotli with its dictionary.
const BINARY_BYTES_MAX: u64 = 13_800_000;

const KUBECONFORM: &str = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0";
const KUBERNETES: &str = "kubernetes-validate";
const OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator@v0.85.0";
const TYPESCRIPT: &str = "typescript@5";
