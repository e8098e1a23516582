//! Masks planned objects with Terraform's masks of sensitive values, for display and for references.

use serde_json::{Map, Value};

use super::saved_plan::{self, at, mask_below, members};
use konverge_base::model::{claim::Claim, masked_value};
use konverge_secrets::{Secrets, mask_terraform, named_texts};

/// Returns the object that references of other resources read, unmasked, with `$unknown` where only the
/// provider knows the value.
pub(super) fn expected_object(after: &Value, after_unknown: &Value) -> Value {
    overlay(after, after_unknown, &Value::Null, None)
}

/// Returns the object for display, with `$unknown` and `$secret` markers and without unset attributes. A
/// value is secret if its provider marks it as sensitive, or by its name.
pub(super) fn mask_object(object: &Value, unknown: &Value, sensitive: &Value, secrets: &Secrets) -> Value {
    match true_object(object, unknown, sensitive, secrets) {
        Value::Object(map) => Value::Object(mask_terraform(secrets, "", &map).into_owned()),
        other => other,
    }
}

/// Returns an object for policy rules: a value is masked only if the provider marks it as sensitive.
pub(super) fn true_object(object: &Value, unknown: &Value, sensitive: &Value, secrets: &Secrets) -> Value {
    without_nulls(overlay(object, unknown, sensitive, Some(secrets)))
}

fn overlay(value: &Value, unknown: &Value, sensitive: &Value, secrets: Option<&Secrets>) -> Value {
    if *unknown == Value::Bool(true) {
        return masked_value::unknown();
    }
    if let Some(secrets) = secrets
        && *sensitive == Value::Bool(true)
    {
        return match value {
            _ if masked_value::holds_true(unknown) => masked_value::unknown(),
            Value::Null => Value::Null,
            secret => secrets.mark_fetched(secret),
        };
    }
    match value {
        Value::Array(items) => {
            let length = items.len().max(unknown.as_array().map_or(0, Vec::len));
            (0..length)
                .map(|index| {
                    let item = items.get(index).unwrap_or(&Value::Null);
                    overlay(item, at(unknown, index), at(sensitive, index), secrets)
                })
                .collect()
        }
        Value::Object(map) => {
            let missing = members(unknown)
                .map(|(key, _)| key)
                .filter(|key| !map.contains_key(*key));
            // A marker in a provider's value was not written by Konverge, so it is masked for display. For
            // references the value stays unchanged.
            let sign =
                if secrets.is_some() && (masked_value::is_unknown(value) || masked_value::is_secret(value)) {
                    "$"
                } else {
                    ""
                };
            let all: Map<String, Value> = map
                .keys()
                .chain(missing)
                .map(|key| {
                    let member = map.get(key).unwrap_or(&Value::Null);
                    let laid = overlay(
                        member,
                        mask_below(unknown, key),
                        mask_below(sensitive, key),
                        secrets,
                    );
                    (format!("{sign}{key}"), laid)
                })
                .collect();
            Value::Object(all)
        }
        Value::Null if unknown.is_object() && masked_value::holds_true(unknown) => {
            overlay(&Value::Object(Map::new()), unknown, sensitive, secrets)
        }
        scalar => scalar.clone(),
    }
}

/// Returns the texts of an object that are sensitive by the mask or by their name.
pub(super) fn secret_texts(object: &Value, sensitive: &Value) -> Vec<String> {
    let mut texts = named_texts(object);
    gather(object, sensitive, &mut texts);
    texts.sort();
    texts.dedup();
    texts
}

/// Returns the keyed hash of an object's type and of its id at the provider. `None` if the id is unknown.
pub(super) fn object_hash(kind: &str, object: &Value, secrets: &Secrets) -> Option<String> {
    let id = object.get("id")?.as_str().filter(|id| !id.is_empty())?;
    Some(secrets.hash(Claim::hashed_text(kind, id).as_bytes()))
}

fn gather(value: &Value, sensitive: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) if *sensitive == Value::Bool(true) => texts.push(text.clone()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, item)| gather(item, at(sensitive, index), texts)),
        Value::Object(map) => map
            .iter()
            .for_each(|(key, member)| gather(member, mask_below(sensitive, key), texts)),
        _ => {}
    }
}

/// Returns the attributes of a Spec, with values masked that are sensitive for the provider or by their name.
/// A block that the Spec writes as one object is a list in the provider's mask.
pub(super) fn attributes(
    given: &Map<String, Value>,
    sensitive: &Value,
    secrets: &Secrets,
) -> Map<String, Value> {
    let laid = true_attributes(given, sensitive, secrets);
    mask_terraform(secrets, "", &laid).into_owned()
}

/// Returns the attributes for policy rules: a value is masked only if the provider marks it as sensitive.
pub(super) fn true_attributes(
    given: &Map<String, Value>,
    sensitive: &Value,
    secrets: &Secrets,
) -> Map<String, Value> {
    fn overlay_members(map: &Map<String, Value>, sensitive: &Value, secrets: &Secrets) -> Map<String, Value> {
        let members = map.iter();
        members
            .map(|(key, member)| {
                let laid = overlay_mask(member, mask_below(sensitive, key), secrets);
                (key.clone(), laid)
            })
            .collect()
    }
    fn overlay_mask(given: &Value, sensitive: &Value, secrets: &Secrets) -> Value {
        match (given, sensitive) {
            (Value::Null, _) => Value::Null,
            (secret, Value::Bool(true)) => secrets.mark_fetched(secret),
            (Value::Object(_), Value::Array(blocks)) if blocks.len() == 1 => {
                overlay_mask(given, &blocks[0], secrets)
            }
            (Value::Object(map), _) => Value::Object(overlay_members(map, sensitive, secrets)),
            (Value::Array(items), _) => items
                .iter()
                .enumerate()
                .map(|(index, item)| overlay_mask(item, at(sensitive, index), secrets))
                .collect(),
            (scalar, _) => scalar.clone(),
        }
    }
    overlay_members(given, sensitive, secrets)
}

/// Masks a value before and after the change if it is sensitive on either side.
pub(super) fn hide_alike(
    before: &mut Value,
    after: &mut Value,
    planned: &saved_plan::PlannedChange,
    secrets: &Secrets,
) {
    let nothing = Value::Null;
    for (key, _) in members(&planned.before_sensitive).chain(members(&planned.after_sensitive)) {
        let sides: [(&mut Value, &Value); 2] = [(before, &planned.before), (after, &planned.after)];
        let other = |mask: &Value| mask_below(mask, key).clone();
        let either = [&planned.before_sensitive, &planned.after_sensitive]
            .map(other)
            .into_iter()
            .find(|mask| *mask == Value::Bool(true));
        let Some(mask) = either else { continue };
        for (side, clear) in sides {
            if let (Some(member), Some(clear)) = (side.get_mut(key), clear.get(key))
                && !masked_value::is_unknown(member)
            {
                *member = mask_object(clear, &nothing, &mask, secrets);
            }
        }
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, member)| !member.is_null())
                .map(|(key, member)| (key, without_nulls(member)))
                .collect(),
        ),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;
    use serde_json::json;

    #[test]
    fn marks_stand_where_the_masks_say() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let after = json!({"name": "n", "password": "hunter2222", "unset": null, "blocks": [{"key": "hunter3333", "port": 1}], "list": ["a", null]});
        let unknown = json!({"id": true, "blocks": [{"arn": true}], "list": [false, true]});
        let sensitive = json!({"password": true, "blocks": [{"key": true}]});
        let shown = mask_object(&after, &unknown, &sensitive, &secrets);
        assert_eq!(
            shown,
            json!({"name": "n", "password": secrets.mark(&json!("hunter2222")),
                "blocks": [{"key": secrets.mark(&json!("hunter3333")), "port": 1, "arn": {"$unknown": true}}],
                "list": ["a", {"$unknown": true}], "id": {"$unknown": true}})
        );
        assert_eq!(secrets.mask("hunter3333"), "***");
        assert_eq!(secret_texts(&after, &sensitive), ["hunter2222", "hunter3333"]);
        let by_name = json!({"account_password": "hunter4444", "n": 1});
        let none = Value::Null;
        let shown = super::mask_object(&by_name, &none, &none, &secrets);
        assert_eq!(
            shown["account_password"],
            secrets.mark(&json!("hunter4444")),
            "no schema says so"
        );
        let expected = expected_object(&after, &unknown);
        assert_eq!(expected["password"], "hunter2222");
        assert_eq!(expected["id"], masked_value::unknown());
    }

    #[test]
    fn a_provider_answers_no_marks() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let after = json!({"a": {"$secret": "hunter2222"}, "b": [{"$unknown": true}], "c": {"password": {"$secret": "hunter3333"}}});
        let shown = mask_object(&after, &json!({"id": true}), &Value::Null, &secrets);
        let text = shown.to_string();
        assert!(!text.contains("hunter3333"), "{text}");
        assert_eq!(
            shown["a"],
            json!({"$$secret": secrets.mark(&json!("hunter2222"))})
        );
        assert_eq!(
            (&shown["b"], &shown["id"]),
            (&json!([{"$$unknown": true}]), &masked_value::unknown())
        );
        assert_eq!(
            expected_object(&after, &Value::Null),
            after,
            "references get it as it is"
        );
    }

    #[test]
    fn a_spec_is_marked_by_the_schema_of_its_resource() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let given = json!({"auth": {"token": "hunter2222"}, "n": 1});
        let marked = attributes(
            given.as_object().unwrap(),
            &json!({"auth": [{"token": true}]}),
            &secrets,
        );
        assert_eq!(marked["auth"]["token"], secrets.mark(&json!("hunter2222")));
        assert_eq!(marked["n"], 1);
    }
}
