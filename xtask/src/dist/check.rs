//! What is made, tried: unpacked, installed, upgraded, removed and purged in a root of its own,
//! read by the tools of others, and built again in another place.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{ARCHES, Arch, Release, binary, fresh, output, write};
use crate::{host, root, run};

/// Tries what was made for this host's architecture, and what the others have in common with it.
pub(super) fn all(release: &Release) -> Result<(), String> {
    if !host::prepare(TOOLS) {
        return Err("the tools above are needed to check".into());
    }
    for arch in ARCHES.iter().filter(|arch| release.path(arch, ".tar.gz").is_file()) {
        println!("== {}", arch.name);
        tarball(release, arch)?;
        image(release, arch)?;
        run(Command::new("lintian").args(["--fail-on", "error"]).arg(package(release, arch)))?;
    }
    let native = output(Command::new("dpkg").arg("--print-architecture"))?;
    let native = ARCHES.iter().find(|arch| arch.name == native);
    if let Some(arch) = native.filter(|arch| package(release, arch).is_file()) {
        println!("== the package in a root of its own");
        installed(release, arch)?;
        println!("== the same bytes from another place");
        reproduced(release, arch)?;
    }
    println!("== the browser client");
    browser_client(release)?;
    println!("== compose and Kubernetes");
    manifests(release)
}

/// Static, stripped and small; beside it a manual and completions that can be read.
fn tarball(release: &Release, arch: &Arch) -> Result<(), String> {
    let dir = release.work.join(format!("unpacked-{}", arch.name));
    fresh(&dir)?;
    let archive = release.path(arch, ".tar.gz");
    run(Command::new("tar").args(["--strip-components=1", "-xzf"]).arg(archive).current_dir(&dir))?;
    let binary = dir.join("stentor");
    let bytes = fs::metadata(&binary).map_err(|error| error.to_string())?.len();
    println!("binary: {bytes} bytes");
    expect(bytes <= BINARY_BYTES_MAX, "the binary is larger than it may be")?;
    let elf = output(Command::new("readelf").args(["-lS", "--dynamic"]).arg(&binary))?;
    expect(!elf.contains("INTERP") && !elf.contains("NEEDED"), "the binary is not static")?;
    expect(!elf.contains(".symtab"), "the binary is not stripped")?;
    let serve = fs::read_to_string(dir.join("man/stentor-serve.1")).unwrap_or_default();
    expect(serve.contains(".TH stentor-serve 1"), "there is no page of the manual on serve")?;
    run(Command::new("bash").arg("-n").arg(dir.join("completions/stentor")))
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
    run(Command::new("tar").arg("-xf").arg(archive).current_dir(&dir))?;
    let image = format!("{}:{}", dir.display(), release.version);
    run(Command::new("umoci")
        .args(["unpack", "--rootless", "--image", &image, "bundle"])
        .current_dir(&dir))?;
    let files = output(Command::new("ls").arg(dir.join("bundle/rootfs")))?;
    expect(files == "stentor", "there is something else in the image")
}

/// Installed, upgraded, removed and purged; a changed configuration outlives all but the last.
fn installed(release: &Release, arch: &Arch) -> Result<(), String> {
    let scratch = release.work.join("root");
    fresh(&scratch)?;
    run(Command::new("unshare")
        .args(["--mount", "sh", "-c", INSTALLED, "installed.sh"])
        .args([package(release, arch), scratch]))
}

/// What is committed, copied elsewhere and built there by itself.
fn reproduced(release: &Release, arch: &Arch) -> Result<(), String> {
    let elsewhere = std::env::temp_dir().join(format!("stentor-elsewhere-{}", std::process::id()));
    fresh(&elsewhere)?;
    let files = "git ls-files -z | xargs -0 cp --parents -t \"$0\"";
    run(Command::new("sh").args(["-c", files]).arg(&elsewhere).current_dir(root()))?;
    let again = binary::build_in(release, arch, &elsewhere, &elsewhere.join("target"));
    let same = again.and_then(|again| {
        let first = release.kept.join("cargo").join(arch.target).join("dist/stentor");
        run(Command::new("cmp").arg(first).arg(again))
    });
    let _ = fs::remove_dir_all(&elsewhere);
    same
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

/// By docker-compose's own schema, and by those of Kubernetes.
fn manifests(release: &Release) -> Result<(), String> {
    let file = |name: &str| root().join("packaging").join(name);
    let compose = ["config", "--quiet"];
    run(Command::new("docker-compose").arg("-f").arg(file("compose.yaml")).args(compose))?;
    let tools = release.kept.join("tools/bin");
    run(Command::new(tools.join("pip")).args(["install", "--quiet", KUBERNETES]))?;
    let strict = ["--strict", "--quiet"];
    run(Command::new(tools.join("kubernetes-validate")).args(strict).arg(file("kubernetes.yaml")))
}

fn package(release: &Release, arch: &Arch) -> PathBuf {
    release.out.join(format!("stentor_{}-1_{}.deb", release.version, arch.name))
}

fn expect(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

const TOOLS: &[&str] = &["lintian", "skopeo", "umoci", "docker-compose", "readelf", "npx"];

const INSTALLED: &str = include_str!("installed.sh");

/// What a host, an image and a download bear.
const BINARY_BYTES_MAX: u64 = 7_000_000;

const TYPESCRIPT: &str = "typescript@5";
const KUBERNETES: &str = "kubernetes-validate";
