//! OpenAPI 3.1 of the HTTP interface, made of the table of endpoints.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stentor_wire::error::ErrorCode;
use stentor_wire::notice::{GapReason, Resume};

use crate::endpoints::{Answer, Listener, Operation, Parameter, Place, Schema, endpoints};

/// The whole document.
pub(crate) fn document() -> Value {
    let (mut paths, mut responses) = (json!({}), Responses::default());
    for endpoint in endpoints() {
        for operation in &endpoint.operations {
            for method in operation.methods {
                let method = method.to_ascii_lowercase();
                paths[endpoint.path][&method] = of_operation(operation, &method, &mut responses);
            }
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Stentor",
            "summary": "An HTTP server for live values",
            "version": "1.0",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [
            {"url": "http://127.0.0.1:8080", "description": "public"},
            {"url": "http://127.0.0.1:8081", "description": "control"},
        ],
        "security": [{}, {"bearer": []}, {"access_token": []}],
        "paths": paths,
        "components": {
            "responses": responses.into_json(),
            "schemas": schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "access_token": {"type": "apiKey", "in": "query", "name": "access_token"},
            },
        },
    })
}

/// The responses that operations have in common, each with the name of the first that has it.
#[derive(Default)]
struct Responses(Vec<(String, Value)>);

impl Responses {
    /// Returns a reference to a response, which is added if there is none like it.
    fn share(&mut self, name: String, response: Value) -> Value {
        let index = self.0.iter().position(|(_, other)| *other == response).unwrap_or_else(|| {
            self.0.push((name, response));
            self.0.len() - 1
        });
        json!({"$ref": format!("#/components/responses/{}", self.0[index].0)})
    }

    fn into_json(self) -> Value {
        Value::Object(self.0.into_iter().collect())
    }
}

fn of_operation(operation: &Operation, method: &str, shared: &mut Responses) -> Value {
    let has_body = method != "head";
    let id = format!("{method}{}", operation.name);
    let mut responses = json!({});
    for answer in operation.answers {
        responses[answer.status.to_string()] = of_answer(answer, has_body);
    }
    let mut codes: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in operation.codes() {
        codes.entry(code.status().0).or_default().push(code.name());
    }
    for (status, codes) in codes {
        let response = of_errors(&codes, has_body);
        responses[status.to_string()] = shared.share(format!("{id}{status}"), response);
    }
    let parameters: Vec<Value> = operation.parameters.iter().map(of_parameter).collect();
    let mut value = json!({
        "operationId": id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if !operation.listeners.contains(&Listener::Public) {
        let control = json!({"url": "http://127.0.0.1:8081", "description": "control"});
        value["servers"] = json!([control]);
    }
    if !operation.body.is_empty() {
        value["requestBody"] = json!({"content": content(operation.body)});
    }
    value
}

fn of_parameter(parameter: &Parameter) -> Value {
    let (place, is_required) = match parameter.place {
        Place::Path => ("path", true),
        Place::Query => ("query", false),
        Place::Header => ("header", false),
    };
    let schema = match parameter.schema {
        Schema::Text => json!({"type": "string"}),
        Schema::Topics => json!({"type": "array", "items": {"type": "string", "pattern": "^/"}}),
        Schema::Word(words) => json!({"type": "string", "enum": words}),
        Schema::Number(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
        Schema::Named(name) => reference(name),
    };
    json!({
        "name": parameter.name,
        "in": place,
        "required": is_required,
        "description": parameter.description,
        "schema": schema,
    })
}

fn of_answer(answer: &Answer, has_body: bool) -> Value {
    let mut response = json!({"description": answer.description});
    for field in answer.fields {
        response["headers"][field] = json!({"schema": {"type": "string"}});
    }
    if has_body && !answer.content.is_empty() {
        response["content"] = content(answer.content);
    }
    response
}

/// The response with one of these codes.
fn of_errors(codes: &[&str], has_body: bool) -> Value {
    let code = json!({"type": "string", "enum": codes});
    let mut response = json!({
        "description": "An error; Stentor-Error has its code.",
        "headers": {
            "Stentor-Error": {"required": true, "schema": code},
            "Retry-After": {"schema": {"type": "integer"}},
        },
    });
    if has_body {
        response["content"] =
            content(&[("application/problem+json", "Problem"), ("text/plain", "Text")]);
    }
    response
}

fn content(types: &[(&str, &str)]) -> Value {
    let entry = |(media, schema): &(&str, &str)| {
        ((*media).to_owned(), json!({"schema": reference(schema)}))
    };
    Value::Object(types.iter().map(entry).collect())
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// An object with these members, of which those in `required` are always there.
fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties})
}

fn schemas() -> Value {
    let mut all = values();
    for part in [items(), reports()] {
        all.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    }
    all
}

/// The schemas of values, names and errors.
fn values() -> Value {
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
    let titles: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.title()).collect();
    json!({
        "Any": {},
        "Text": {"type": "string"},
        "Bytes": {"description": "Any bytes."},
        "EventStream": {"type": "string", "description": "Server-Sent Events."},
        "Lines": {"type": "string", "description": "Message objects, one a line."},
        "Topic": {"type": "string", "minLength": 1, "maxLength": 511},
        "Id": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9]+$"},
        "Cursor": {"type": "string", "pattern": CURSOR},
        "EventName": {"type": "string", "minLength": 1, "maxLength": 255},
        "ErrorCode": {"type": "string", "enum": codes, "x-enum-descriptions": titles},
        "Problem": object(
            &["type", "title", "status", "code", "detail"],
            json!({
                "type": {"type": "string"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "code": reference("ErrorCode"),
                "detail": {"type": "string"},
                "retry_after_seconds": {"type": "integer"},
            }),
        ),
        "Values": {
            "type": "object",
            "description": "By name: JSON, text, bytes as data_base64, or null.",
        },
    })
}

/// The schemas of what streams and lists of events contain.
fn items() -> Value {
    let reasons = GapReason::ALL.map(GapReason::name);
    let resumes = Resume::ALL.map(Resume::name);
    let names = json!({"type": "array", "items": {"type": "string"}});
    let gap = json!({
        "reason": {"type": "string", "enum": reasons},
        "since": {"type": "string"},
        "resume": {"type": "string", "enum": resumes},
    });
    let access = json!({"denied": names, "partial": names});
    json!({
        "Message": object(&["topic"], json!({
            "topic": {"type": "string"},
            "id": reference("Id"),
            "type": {"type": "string", "description": "The content type."},
            "event": reference("EventName"),
            "data": {"description": "JSON if the type is JSON, or else text."},
            "data_base64": {"type": "string", "contentEncoding": "base64"},
            "cache_control": {"type": "string"},
            "published_at": {"type": "string", "format": "date-time"},
            "deleted": {"type": "boolean"},
        })),
        "Notice": {"oneOf": [
            object(&["cursor"], json!({"cursor": reference("Id")})),
            object(&["gap"], json!({"gap": object(&["reason", "resume"], gap)})),
            object(&["access"], json!({"access": object(&["denied", "partial"], access)})),
            object(&["end"], json!({"end": object(
                &["reason"], json!({"reason": reference("ErrorCode")}),
            )})),
        ]},
        "Events": object(&["cursor", "events"], json!({
            "cursor": reference("Id"),
            "events": {
                "type": "array",
                "items": {"oneOf": [reference("Message"), reference("Notice")]},
            },
        })),
    })
}

/// The schemas of what the server says of itself and of changes.
fn reports() -> Value {
    let text = json!({"type": "string"});
    let count = json!({"type": "integer", "minimum": 0});
    let id_or_null = json!({"oneOf": [reference("Id"), {"type": "null"}]});
    let topic = json!({
        "topic": text,
        "id": reference("Id"),
        "type": text,
        "value_bytes": count,
        "history_messages": count,
        "published_at": {"type": "string", "format": "date-time"},
    });
    let topic_members = ["topic", "id", "type", "value_bytes", "history_messages", "published_at"];
    let limits = [
        "command_bytes",
        "message_bytes",
        "names",
        "request_line_bytes",
        "topics_per_stream",
        "wait_seconds",
    ];
    let limit = |name: &str| (name.to_owned(), count.clone());
    let line = json!({"line": count, "code": reference("ErrorCode"), "detail": text});
    json!({
        "Change": object(&["id", "readers"], json!({"id": reference("Id"), "readers": count})),
        "BulkReport": object(&["published", "failed", "last_id", "errors"], json!({
            "published": count,
            "failed": count,
            "last_id": id_or_null,
            "errors": {"type": "array", "items": object(&["line", "code", "detail"], line)},
        })),
        "Operation": object(&["pid", "succeeded", "failed"], json!({
            "pid": count, "succeeded": count, "failed": count,
        })),
        "Topics": object(&["topics", "next"], json!({
            "topics": {"type": "array", "items": object(&topic_members, topic)},
            "next": {"type": ["string", "null"]},
        })),
        "Info": object(&["name", "contract", "features", "limits"], json!({
            "name": {"const": "stentor"},
            "version": text,
            "contract": text,
            "features": {"type": "array", "items": text},
            "limits": object(&limits, Value::Object(limits.into_iter().map(limit).collect())),
        })),
        "Status": {"type": "object"},
    })
}

/// A cursor, an id, or the tag of a value in any form; or a word.
const CURSOR: &str = r#"^(earliest|now|(W/)?"?[0-9a-f]{8}-[0-9]+(\.(gz|br|zst))?"?)$"#;
