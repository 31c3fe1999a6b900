//! The JSON Schema of the configuration file, by which editors complete and check it.

use serde_json::{Map, Value, json};
use stentor_config::{ValueForm, setting_references, table_references};

/// The whole schema.
pub(crate) fn schema() -> Value {
    let mut root = table("The configuration of Stentor.");
    for setting in setting_references() {
        let mut value = of(&setting.form);
        value["description"] = json!(setting.description);
        if let Some(default) = setting.default {
            value["default"] = json!(default);
        }
        within(&mut root, setting.table)["properties"][setting.key] = value;
    }
    for kind in table_references() {
        let mut item = table("");
        let keys = kind.keys.iter();
        let required: Vec<&str> = keys.filter(|key| key.is_required).map(|key| key.key).collect();
        item["required"] = json!(required);
        for key in kind.keys {
            item["properties"][key.key] = of(&key.form);
            item["properties"][key.key]["description"] = json!(key.description);
        }
        root["properties"][kind.name] = json!({"type": "array", "items": item});
    }
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("stentor.toml");
    root["$defs"] = json!({
        "size": {"type": "string", "pattern": "^[0-9]+ *([kKmMgG]?[bB]|[kKmMgG][iI][bB])?$"},
        "duration": {"type": "string", "pattern": "^[0-9]+ *([mM]?[sS]|[mMhHdDyY])?$"},
    });
    root
}

/// A table without keys.
fn table(description: &str) -> Value {
    let mut table = json!({"type": "object", "properties": {}, "additionalProperties": false});
    if !description.is_empty() {
        table["description"] = json!(description);
    }
    table
}

/// The table of that name, whose parts have dots between them.
fn within<'a>(root: &'a mut Value, name: &str) -> &'a mut Value {
    name.split('.').filter(|part| !part.is_empty()).fold(root, |within, part| {
        let properties = within["properties"].as_object_mut().unwrap_or_else(|| unreachable!());
        properties.entry(part).or_insert_with(|| table(""))
    })
}

/// The schema of a value.
fn of(form: &ValueForm) -> Value {
    match form {
        ValueForm::Text => json!({"type": "string"}),
        ValueForm::Flag => json!({"type": "boolean"}),
        ValueForm::Words { words } => json!({"type": "string", "enum": words}),
        ValueForm::Number { min, max } => {
            any([json!({"type": "integer", "minimum": min, "maximum": max}), digits()])
        }
        ValueForm::Size { min, max } => any([
            json!({"type": "integer", "minimum": min, "maximum": max}),
            json!({"$ref": "#/$defs/size"}),
        ]),
        ValueForm::Duration { min, max } => any([
            json!({"type": "integer", "minimum": min.div_ceil(1_000), "maximum": max / 1_000}),
            json!({"$ref": "#/$defs/duration"}),
        ]),
        // Editors hand a date of TOML over as an object or as text.
        ValueForm::Moment => json!({}),
        ValueForm::OneOrMany { of: one } => {
            any([of(one), json!({"type": "array", "items": of(one)})])
        }
        ValueForm::AutoOr { of: other } => any([json!({"const": "auto"}), of(other)]),
    }
}

/// A number in quotes, which is read as well.
fn digits() -> Value {
    json!({"type": "string", "pattern": "^[0-9]+$"})
}

fn any(forms: impl Into<Vec<Value>>) -> Value {
    Value::Object(Map::from_iter([("anyOf".to_owned(), Value::Array(forms.into()))]))
}
