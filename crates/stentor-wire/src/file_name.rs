//! What the name of a file tells of its content: the media type, and whether it can ever change.
//!
//! Both are told by the name alone, never by looking inside: with `X-Content-Type-Options: nosniff`
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

use crate::saturating_decimal;

/// The media type of a file, by its extension in any case; `application/octet-stream` without one,
/// or for one that is not known.
pub fn content_type(name: &str) -> &'static str {
    let extension = last_segment(name).rsplit_once('.').map_or("", |(_, extension)| extension);
    let mut lower = [0; EXTENSION_BYTES_MAX];
    let Some(lower) = lower.get_mut(..extension.len()) else { return BYTES };
    lower.copy_from_slice(extension.as_bytes());
    lower.make_ascii_lowercase();
    let found = TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(lower));
    found.map_or(BYTES, |index| TYPES[index].1)
}

/// Whether a file's name has a hash of its content in it, as bundlers write it: then what it names
/// never changes, and caches need not ask again.
///
/// The hash is what stands between the last two of '.', '-' and '_' before the extension. It is at
/// least eight characters long, and either lowercase hexadecimal, with a digit and a letter, or
/// base64url, with a digit and a letter of each case. Dates with a letter behind them and words
/// with a number are that too, so its characters must also change their kind as often as random
/// ones do. And the extension must be one of what bundlers write.
///
/// A wrong yes is served stale for a year, and a wrong no costs a 304. So what could be either is
/// a no: a hash that happens to have no digit, or to look like a word, and one with '-' or '_'
/// in it, since that could as well be words or a size joined by them.
pub fn is_hashed(name: &str) -> bool {
    let Some(stem) = stem(name) else { return false };
    match stem.rfind(['.', '-', '_']) {
        Some(before) if before > 0 => is_hash(&stem.as_bytes()[before + 1..]),
        _ => false,
    }
}

/// Whether a file's name could have a hash in it, if all around it is known to be a bundler's.
///
/// Behind '.', '-' or '_' stand the last eight characters before the extension, of the alphabet of
/// Vite and Rollup (base64url), esbuild and Angular (base32) and Parcel (hexadecimal); or eight
/// lowercase hexadecimal digits or more. So could a word of eight letters.
pub fn may_be_hashed(name: &str) -> bool {
    let Some(stem) = stem(name).map(str::as_bytes) else { return false };
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let hex = stem.iter().rev().take_while(|byte| is_hex(byte)).count();
    let of_bundlers = stem.iter().rev().take(HASH_CHARS_MIN).all(|&byte| is_base64url(byte));
    let is_behind = |hash: usize| {
        let before = stem.len().checked_sub(hash + 1);
        before.is_some_and(|at| at > 0 && matches!(stem[at], b'.' | b'-' | b'_'))
    };
    of_bundlers && is_behind(HASH_CHARS_MIN) || hex >= HASH_CHARS_MIN && is_behind(hex)
}

/// Whether a file's name has a hash in it as likely as not: it [may](may_be_hashed), it stands
/// below a directory that bundlers write to, such as `/assets/`, and what could be the hash is
/// neither a date nor a word. Of random hashes of eight, five in ten thousand of base64url are.
///
/// `directory` is what stands before `path`, which may have directories too.
pub fn is_hashed_asset(directory: &str, path: &str) -> bool {
    let (inner, name) = path.rsplit_once('/').unwrap_or(("", path));
    let segments = || directory.split('/').chain(inner.split('/'));
    may_be_hashed(name)
        && segments().any(|segment| ASSETS.contains(&segment))
        && stem(name).is_some_and(|stem| {
            let hash = &stem.as_bytes()[stem.len() - HASH_CHARS_MIN..];
            !is_date(hash) && !is_word(hash)
        })
}

/// The name of a file that bundlers write, without its extension; `None` for any other.
fn stem(name: &str) -> Option<&str> {
    let (stem, extension) = last_segment(name).rsplit_once('.')?;
    let stem = match extension {
        "map" => CODE.iter().find_map(|code| stem.strip_suffix(code)).unwrap_or(stem),
        _ if BUNDLED.contains(&extension) => stem,
        _ => return None,
    };
    Some(stem.strip_suffix(".min").unwrap_or(stem))
}

/// A path without its directories.
fn last_segment(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Whether this is hexadecimal or base64url, and looks random.
fn is_hash(piece: &[u8]) -> bool {
    let has = |kind: fn(&u8) -> bool| piece.iter().any(kind);
    let digit = has(u8::is_ascii_digit);
    let lower = has(u8::is_ascii_lowercase);
    let upper = has(u8::is_ascii_uppercase);
    if piece.len() < HASH_CHARS_MIN || !piece.iter().all(u8::is_ascii_alphanumeric) || !digit {
        return false;
    }
    let runs = 1 + piece.windows(2).filter(|pair| !goes_on(pair[0], pair[1])).count();
    if piece.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        lower && (runs >= HEX_RUNS_MIN || piece.len() >= HEX_CHARS_SURE)
    } else {
        lower && upper && runs * RUN_CHARS_MAX >= piece.len()
    }
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Whether eight characters are a day such as 20240102.
fn is_date(piece: &[u8]) -> bool {
    let number = |digits| saturating_decimal(digits).unwrap_or(u64::MAX);
    let (year, month, day) = (number(&piece[..4]), number(&piece[4..6]), number(&piece[6..]));
    (1900..2100).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day)
}

/// Whether this reads like a word, with a capital in front or without: some of its letters are
/// vowels, nowhere come four consonants in a row, and it is not hexadecimal.
fn is_word(piece: &[u8]) -> bool {
    let vowel = |byte: &u8| b"aeiouy".contains(&byte.to_ascii_lowercase());
    let vowels = piece.iter().filter(|byte| vowel(byte)).count();
    let is_lower = piece[1..].iter().all(u8::is_ascii_lowercase);
    piece[0].is_ascii_alphabetic()
        && is_lower
        && !piece.iter().all(u8::is_ascii_hexdigit)
        && (2..=5).contains(&vowels)
        && !piece.windows(4).any(|letters| !letters.iter().any(vowel))
}

/// Whether two characters could stand in one word or one number. A capital begins a word.
fn goes_on(byte: u8, next: u8) -> bool {
    match next {
        b'0'..=b'9' => byte.is_ascii_digit(),
        b'A'..=b'Z' => byte.is_ascii_uppercase(),
        _ => byte.is_ascii_alphabetic(),
    }
}

/// The shortest hash that bundlers write, in characters.
const HASH_CHARS_MIN: usize = 8;
/// The fewest words and numbers in a hexadecimal hash. Of random ones of eight digits three in four
/// have as many, of those of sixteen nearly all; dates with a letter or a month in them have three.
const HEX_RUNS_MIN: usize = 4;
/// No word or date has so many hexadecimal digits.
const HEX_CHARS_SURE: usize = 16;
/// The mean length of words and numbers in a hash of mixed case, at most; in a random one it is a
/// little less.
const RUN_CHARS_MAX: usize = 2;

/// Directories that bundlers write to, by default: Vite, Remix and Rails; Astro; Next.js; Nuxt; and
/// SvelteKit.
const ASSETS: &[&str] = &["assets", "_astro", "_next", "_nuxt", "_app"];

/// What comes before the extension of a source map.
const CODE: &[&str] = &[".js", ".mjs", ".cjs", ".css"];

/// The extensions of what bundlers write under names with hashes. Pages keep their names, and
/// documents, archives and data with a number in theirs are somebody else's.
const BUNDLED: &[&str] = &[
    "js", "mjs", "cjs", "css", "wasm", "svg", "png", "jpg", "jpeg", "gif", "webp", "avif", "ico",
    "woff", "woff2", "ttf", "otf", "eot", "mp3", "mp4", "ogg", "webm",
];

const BYTES: &str = "application/octet-stream";

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
