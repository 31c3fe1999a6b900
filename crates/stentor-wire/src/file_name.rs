//! The media type of a file, by its name.
//!
//! The name alone decides, never the content: with `X-Content-Type-Options: nosniff`
//! a browser believes what we say, so a page must not become a script because it begins like one.
//! What the table does not know is bytes, which a browser offers to save.
//!
//! Of text we say that it is UTF-8, since nearly all of it is, and since a browser guesses
//! otherwise. XML says so by itself (RFC 7303) if it is called `application/xml`, as `text/xml` was
//! ASCII for too long to be relied upon; JSON is never anything else (RFC 8259). JavaScript is
//! `text/javascript` (RFC 9239).
//!
//! The table stands here because mime_guess and its successor have had no release for two years and
//! name no charset, and `nosniff` makes a wrong type worse than none.

/// The media type of a file, by its extension in any case; `application/octet-stream` without one,
/// or for one that is not known. A few names that platforms prescribe have no extension.
pub fn content_type(name: &str) -> &'static str {
    let last = last_segment(name);
    if ASSOCIATIONS.contains(&last) {
        return "application/json";
    }
    let extension = last.rsplit_once('.').map_or("", |(_, extension)| extension);
    let mut lower = [0; EXTENSION_BYTES_MAX];
    let Some(lower) = lower.get_mut(..extension.len()) else { return BYTES };
    lower.copy_from_slice(extension.as_bytes());
    lower.make_ascii_lowercase();
    let found = TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(lower));
    found.map_or(BYTES, |index| TYPES[index].1)
}

/// A path without its directories.
fn last_segment(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

const BYTES: &str = "application/octet-stream";

/// Files by which a site names the apps and services that belong to it.
const ASSOCIATIONS: [&str; 3] = ["apple-app-site-association", "openid-configuration", "webauthn"];

/// The longest extension in the table, in bytes.
const EXTENSION_BYTES_MAX: usize = 11;

/// Media types by extension, in the order of the extensions.
static TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("dmg", "application/x-apple-diskimage"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("exe", "application/vnd.microsoft.portable-executable"),
    ("flac", "audio/flac"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gpx", "application/gpx+xml"),
    ("gz", "application/gzip"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("log", "text/plain; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mkv", "video/matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("msi", "application/x-msi"),
    ("ndjson", "application/x-ndjson"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("rar", "application/vnd.rar"),
    ("rpm", "application/x-rpm"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("srt", "application/x-subrip"),
    ("stl", "model/stl"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("torrent", "application/x-bittorrent"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vcf", "text/vcard; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xsl", "application/xslt+xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests;
