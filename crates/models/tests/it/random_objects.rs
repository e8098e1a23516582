//! Random objects of a schema: valid ones, and ones with a fault whose keyword is known.

use konverge_testkit::random::Random;
use serde_json::{Map, Value, json};

/// Makes objects of one schema.
pub struct Maker<'a> {
    pub random: Random,
    /// What `$ref` stands for.
    pub schemas: &'a Map<String, Value>,
    /// The keyword that the last object breaks.
    pub broken: Option<String>,
    /// One value in so many is broken.
    pub fault: usize,
}

impl Maker<'_> {
    fn resolved<'s>(&'s self, schema: &'s Value) -> &'s Value {
        let schema = match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            Some([only]) => only,
            _ => schema,
        };
        match schema.get("$ref").and_then(Value::as_str) {
            Some(target) => &self.schemas[target.rsplit('/').next().unwrap()],
            None => schema,
        }
    }

    fn breaks(&mut self, keyword: &str) -> bool {
        let breaks = self.broken.is_none() && self.fault > 0 && self.random.once_in(self.fault);
        if breaks {
            self.broken = Some(keyword.to_owned());
        }
        breaks
    }

    /// A value of a schema.
    pub fn value(&mut self, schema: &Value, depth: usize) -> Value {
        let nullable = schema["nullable"] == true;
        let schema = self.resolved(schema).clone();
        if self.random.once_in(12) && (nullable || self.breaks("null")) {
            return Value::Null;
        }
        if self.random.once_in(4) && self.breaks("type") {
            return self
                .random
                .pick(&[
                    json!(true),
                    json!("text"),
                    json!(7),
                    json!(2.5),
                    json!([1]),
                    json!({"a": 1}),
                ])
                .clone();
        }
        if let Some(values) = schema["enum"].as_array() {
            return match self.breaks("enum") {
                true => json!("another"),
                false => self.random.pick(values).clone(),
            };
        }
        if schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string" {
            return match self.random.once_in(2) {
                true => json!(self.random.below(3000)),
                false => self.text(&schema),
            };
        }
        match schema["type"].as_str() {
            Some("string") => self.text(&schema),
            Some("integer") => self.number(&schema, true),
            Some("number") => self.number(&schema, false),
            Some("boolean") => json!(self.random.once_in(2)),
            Some("array") => {
                let count = self.count(&schema, "minItems", "maxItems");
                let items: Vec<_> = (0..count)
                    .map(|_| self.value(&schema["items"], depth + 1))
                    .collect();
                json!(items)
            }
            Some("object") => self.object(&schema, depth),
            _ => self
                .random
                .pick(&[json!(1), json!("x"), json!({"a": [1]}), json!([true])])
                .clone(),
        }
    }

    /// An object of a schema.
    pub fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let mut object = Map::new();
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let empty = Map::new();
        // KCL hides names that begin with `_`: no model has them.
        let known = schema["properties"].as_object().unwrap_or(&empty).iter();
        for (name, inner) in known.filter(|(name, _)| !name.starts_with('_')) {
            let is_wanted = match required.contains(&name.as_str()) {
                true => !(self.random.once_in(3) && self.breaks("required")),
                false => depth < 6 && self.random.once_in(if depth < 2 { 2 } else { 3 }),
            };
            if is_wanted {
                let value = self.value(inner, depth + 1);
                object.insert(name.clone(), value);
            }
        }
        let values = &schema["additionalProperties"];
        if values.is_object() {
            for index in 0..self.count(schema, "minProperties", "maxProperties") {
                let value = self.value(values, depth + 1);
                object.insert(format!("key{index}"), value);
            }
        } else if schema["x-kubernetes-preserve-unknown-fields"] == true {
            object.insert("free".to_owned(), json!([1, {"a": "b"}]));
        } else if !object.is_empty() && self.random.once_in(4) && self.breaks("unknown property") {
            object.insert("unknown".to_owned(), json!("x"));
        }
        Value::Object(object)
    }

    fn count(&mut self, schema: &Value, least: &str, most: &str) -> usize {
        let limit = |name: &str| {
            schema[name]
                .as_u64()
                .and_then(|limit| usize::try_from(limit).ok())
        };
        let (low, high) = (limit(least).unwrap_or(0), limit(most).unwrap_or(2).min(4));
        if schema.get(most).is_some() && self.random.once_in(3) && self.breaks(most) {
            return limit(most).unwrap().min(40) + 1;
        }
        if low > 0 && self.random.once_in(3) && self.breaks(least) {
            return low - 1;
        }
        low.max(self.random.below(high.max(low) + 1))
    }

    fn text(&mut self, schema: &Value) -> Value {
        const WORDS: [&str; 18] = [
            "",
            "a",
            "ab",
            "abc",
            "abcd",
            "世界",
            "é",
            "12",
            "123",
            "١٢",
            "a b",
            "x",
            "A-1",
            "2026-11-26T10:00:00Z",
            "5m",
            "10Gi",
            "abcde",
            "ａ",
        ];
        let checks = ["pattern", "minLength", "maxLength", "format"].map(|name| schema.get(name).is_some());
        if checks.contains(&true) && self.broken.is_none() {
            // Whether it fits is for the two that are compared.
            self.broken = Some("text".to_owned());
        }
        json!(self.random.pick(&WORDS))
    }

    fn number(&mut self, schema: &Value, is_whole: bool) -> Value {
        let limits = ["minimum", "maximum", "multipleOf"].map(|name| schema.get(name).is_some());
        if limits.contains(&true) && self.broken.is_none() {
            self.broken = Some("number".to_owned());
        }
        match is_whole {
            true => json!(*self.random.pick(&[-1, 0, 1, 2, 3, 4, 8, 9, 10, 11, 80, 4_000])),
            false => json!(*self.random.pick(&[0.0, 0.25, 0.5, 1.5, 99.5, 99.75])),
        }
    }
}
