//! The OCI image, from scratch and without a daemon: one layer with the binary and nothing else.
//!
//! An image is a directory of files that are named by their digest: the layer, a document that
//! says how to run it, a manifest that names both, and an index that names the manifest (the OCI
//! image format, version 1.1). Packed, it is what `docker load`, `podman load` and skopeo take.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Arch, Release, copy, fresh, output, write};

/// Writes the layout and packs it.
pub(super) fn make(release: &Release, arch: &Arch, binary: &Path) -> Result<(), String> {
    let dir = release.work.join(format!("image-{}", arch.name));
    let layout = Layout { blobs: dir.join("layout/blobs/sha256") };
    fresh(&layout.blobs)?;
    let files = dir.join("files");
    fresh(&files)?;
    copy(binary, &files.join("stentor"))?;
    let layer = dir.join("layer.tar");
    release.tar(&files, &["stentor"], &layer)?;
    // What the configuration names is the digest of what is in the layer, before it is packed.
    let unpacked = digest(&layer)?;
    release.tar_gz(&files, &["stentor"], &layer)?;
    let layer = layout.keep(&dir.join("layer.tar.gz"), LAYER)?;

    let at = format!("--date=@{}", release.epoch);
    let created = output(Command::new("date").args(["--utc", "+%Y-%m-%dT%H:%M:%SZ", &at]))?;
    let config = format!(
        r#"{{"architecture":"{}","os":"linux","created":"{created}","config":{RUN},"rootfs":{{"#,
        arch.name,
    ) + &format!(r#""type":"layers","diff_ids":["sha256:{unpacked}"]}}}}"#);
    let config = layout.keep_text(&dir.join("config.json"), &config, CONFIG)?;
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","config":{config},"layers":[{layer}]}}"#
    );
    let manifest = layout.keep_text(&dir.join("manifest.json"), &manifest, MANIFEST)?;
    let name = format!(r#"{{"org.opencontainers.image.ref.name":"stentor:{}"}}"#, release.version);
    let platform = format!(r#"{{"architecture":"{}","os":"linux"}}"#, arch.name);
    let manifest = manifest.trim_end_matches('}');
    let index = format!(
        r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{manifest},"annotations":{name},"#
    ) + &format!(r#""platform":{platform}}}]}}"#);
    let layout = dir.join("layout");
    write(&layout.join("index.json"), &index)?;
    write(&layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    release.tar(&layout, &["oci-layout", "index.json", "blobs"], &release.path(arch, ".oci.tar"))
}

/// Files by their digests.
struct Layout {
    blobs: PathBuf,
}

impl Layout {
    /// Keeps a file, and returns what names it: its descriptor.
    fn keep(&self, file: &Path, media_type: &str) -> Result<String, String> {
        let digest = digest(file)?;
        copy(file, &self.blobs.join(&digest))?;
        let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
        Ok(format!(r#"{{"mediaType":"{media_type}","digest":"sha256:{digest}","size":{size}}}"#))
    }

    fn keep_text(&self, file: &Path, text: &str, media_type: &str) -> Result<String, String> {
        write(file, text)?;
        self.keep(file, media_type)
    }
}

fn digest(file: &Path) -> Result<String, String> {
    let line = output(Command::new("sha256sum").arg("--zero").arg(file))?;
    Ok(line.split(' ').next().unwrap_or_default().to_owned())
}

/// How it is run: as nobody in particular, and without a shell to fall into.
const RUN: &str = r#"{
    "User": "65532:65532",
    "ExposedPorts": {"8080/tcp": {}, "8081/tcp": {}},
    "Entrypoint": ["/stentor"],
    "Cmd": ["serve"]
}"#;

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
