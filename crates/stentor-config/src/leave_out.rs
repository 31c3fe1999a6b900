//! What answers may do without: how it is written, and what may not be left out together.

use stentor_hub::{LeaveOut, Rule};

/// A field that answers with a value can do without.
pub(crate) fn value_field(text: &str) -> Result<&'static str, String> {
    let known = VALUE_FIELDS.into_iter().find(|name| *name == text);
    known.ok_or_else(|| {
        format!(
            "'{text}' cannot be left out: write '{LAST_MODIFIED}', '{CACHE_CONTROL}' or '{VARY}'"
        )
    })
}

/// All of them.
pub(crate) const VALUE_FIELDS: [&str; 3] = [LAST_MODIFIED, CACHE_CONTROL, VARY];

/// The same of a look-up's answers.
pub(crate) fn lookup_field(text: &str) -> Result<&'static str, String> {
    if text == CACHE_CONTROL {
        return Ok(CACHE_CONTROL);
    }
    Err(format!("'{text}' cannot be left out of look-ups: only '{CACHE_CONTROL}' can"))
}

/// What these names mean.
pub(crate) fn of_names(names: impl Iterator<Item = &'static str>) -> LeaveOut {
    let mut leave_out = LeaveOut::default();
    for name in names {
        match name {
            LAST_MODIFIED => leave_out.last_modified = true,
            CACHE_CONTROL => leave_out.cache_control = true,
            _ => leave_out.vary = true,
        }
    }
    leave_out
}

/// The names of what is left out.
pub(crate) fn names(leave_out: LeaveOut) -> Vec<&'static str> {
    let LeaveOut { last_modified, cache_control, vary } = leave_out;
    let fields = [(last_modified, LAST_MODIFIED), (cache_control, CACHE_CONTROL), (vary, VARY)];
    fields.into_iter().filter_map(|(is_out, name)| is_out.then_some(name)).collect()
}

/// What a rule says twice, or may not leave out: then why.
pub(crate) fn contradiction(rule: &Rule) -> Option<&'static str> {
    let LeaveOut { cache_control, vary, .. } = rule.leave_out;
    match &rule.cache_control {
        Some(_) if cache_control => Some(
            "cache_control says what leave_out leaves out: 'cache-control' is only the default",
        ),
        None if vary && cache_control => Some(
            "leave_out cannot name both 'vary' and 'cache-control': a cache that may guess how \
             long a value is good would give it to one who asks for a stream",
        ),
        Some(chosen) if vary && !chosen.asks_first() => Some(
            "leave_out can name 'vary' only if caches ask first, by no-cache or no-store in \
             cache_control: others would give a value to one who asks for a stream",
        ),
        _ => None,
    }
}

/// The fields, as they are named.
const LAST_MODIFIED: &str = "last-modified";
pub(crate) const CACHE_CONTROL: &str = "cache-control";
const VARY: &str = "vary";

#[cfg(test)]
mod tests {
    use crate::Settings;

    #[test]
    fn what_contradicts_itself_is_refused() {
        let check = |rule: &str| {
            let text = format!("[[topics]]\nmatch = '/a'\n{rule}");
            Settings::from_toml(&text, "f").unwrap().validate().map_err(|error| error.to_string())
        };
        for (rule, reason) in [
            ("leave_out = ['cache-control', 'vary']", "cannot name both"),
            ("leave_out = 'vary'\ncache_control = 'max-age=1'", "only if caches ask first"),
            ("leave_out = 'cache-control'\ncache_control = 'no-cache'", "is only the default"),
        ] {
            let error = check(rule).unwrap_err();
            assert!(error.contains("the rule of /a: ") && error.contains(reason), "{error}");
        }
        for rule in [
            "leave_out = ['last-modified', 'vary']",
            "leave_out = ['last-modified', 'cache-control']",
            "leave_out = 'vary'\ncache_control = 'max-age=1, no-cache'",
            "leave_out = 'last-modified'\ncache_control = 'max-age=1'",
            "leave_out = []",
        ] {
            assert_eq!(check(rule), Ok(()), "{rule}");
        }
    }
}
