//! What is true of all settings.

use super::*;

/// Every way to write a secret, or a value in which a secret may be, and a mistake in it or beside
/// it on the same line.
#[test]
fn no_error_shows_a_secret() {
    const SECRET: &str = "Tr0ub4dorZ";
    let rows = crate::groups::all().filter(|setting| setting.is_secret);
    let rows = rows.map(|setting| (setting.table, setting.key));
    let mut texts = Vec::new();
    for (table, key) in rows.chain([("token", "sha256"), ("cluster", "password")]) {
        let header = if table == "token" { format!("[[{table}]]") } else { format!("[{table}]") };
        for value in [
            "'S'",
            "\"S\"",
            "\"\"\"\nS\nS\n\"\"\"",
            "'''S\nS'''",
            "'-----BEGIN PRIVATE KEY-----S'",
            "S",
            "'S",
            "\"S",
            "\"\"\"\n-----BEGIN PRIVATE KEY-----\nS\n",
            "'-----BEGIN\nS==\n'",
            "'S' 'S'",
            "\"\\S\"",
            "['S']",
            "['a', 'S', 5]",
            "[\n 5,\n 'S',\n]",
            "['S'",
            "[['S']]",
            "{ a = 'S' }",
            "{ a = { b = 'S' } }",
            "'http://me:S@a'",
            "'http://a/?token=S'",
            "['https://a', 'ftp://S']",
            "'S'\ncolour = 1",
            "'S'\nname = 5",
            "'S'\nsha256 = 'S'",
            "'S'\nkey = 'S'\nkey = 'S'",
        ] {
            texts.push(format!("{header}\n{key} = {value}"));
            texts.push(format!("{header}\n\t{key}={value} # S"));
            texts.push(format!("{header}\n{key}s = {value}"));
            texts.push(format!("{header}\n{key} {value}"));
            texts.push(format!("{table}.{key} = {value}"));
            texts.push(format!("{table} = {value}"));
            texts.push(format!("{table} = {{ {key} = {value}, colour = 1, name = 5 }}"));
            texts.push(format!("{table} = [{{ colour = 1, name = 5, {key} = {value} }}]"));
        }
        texts.push(format!("{header}\n{key} = 918273645\n"));
        texts.push(format!("{table} = [{{ {key} = 918273645, name = 5 }}]"));
        texts.push(format!("{table} = 918273645"));
    }
    let mut count = 0;
    for text in texts.iter().map(|text| text.replace('S', SECRET)) {
        let read = Settings::from_toml(&text, "f");
        let Err(error) = read.and_then(|settings| settings.validate()) else { continue };
        let shown = format!("{error}\n{}", error.in_one_line());
        let is_shown = shown.contains(SECRET) || shown.contains("918273645");
        assert!(!is_shown, "{text}\n\n{shown}");
        count += 1;
    }
    assert!(count * 100 > texts.len() * 95, "{count} of {}", texts.len());
    for setting in crate::groups::all().filter(|setting| setting.is_secret) {
        for value in ["S", "me:S@a", "http://a/?S", "http://a,S b", "-----BEGIN PRIVATE KEY-----S"]
        {
            let value = value.replace('S', SECRET);
            let error = environment(&[(&setting.variable(), &value)]).unwrap_err();
            assert!(!error.contains(SECRET), "{error}");
        }
    }
}

/// In each table with a switch every other setting is refused while the table is off.
#[test]
fn settings_of_a_table_that_is_off_are_refused() {
    let mut count = 0;
    for setting in crate::groups::all() {
        let of_table = |it: &&crate::setting::Setting<Settings>| it.table == setting.table;
        let keys: Vec<_> = crate::groups::all().filter(of_table).map(|it| it.key).collect();
        assert!(setting.switches.iter().all(|key| keys.contains(key)), "{}", setting.name());
        if setting.switches.is_empty() || setting.switches.contains(&setting.key) {
            continue;
        }
        let values = [
            "'none'",
            "'/f'",
            "['/f']",
            "'7m'",
            "3",
            "7",
            "'2 GiB'",
            "'32 MiB'",
            "true",
            "false",
            "'http://a'",
            "['http://a']",
            "'ES256'",
        ];
        let documents = values.map(|value| format!("{} = {value}", setting.name()));
        let usual = (setting.show)(&Settings::default());
        let is_other = |it: &Settings| (setting.show)(it) != usual;
        let read = documents.iter().filter_map(|text| Settings::from_toml(text, "f").ok());
        let settings =
            read.into_iter().find(is_other).unwrap_or_else(|| panic!("{}", setting.name()));
        let error = settings.validate().unwrap_err().to_string();
        let expected = format!("{}: it has no effect without {}.", setting.name(), setting.table);
        assert!(error.contains(&expected), "{error}");
        count += 1;
    }
    assert_eq!(count, 5 + 5 + 16 + 7);
    for on in
        ["[store]\npath = '/s'", "[cluster]\nnats = 'nats://b'", "[follow]\nleader = 'http://a'"]
    {
        let text = format!("{on}\n[[topics]]\nmatch = '/a'\nkeep = 'written'");
        Settings::from_toml(&text, "f").unwrap().validate().unwrap();
    }
}
