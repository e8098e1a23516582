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

    /// An object of a schema with a random value at one random place.
    pub fn with_random_place(&mut self, schema: &Value, object: &Value) -> Value {
        let schema = self.resolved(schema).clone();
        let mut object = object.clone();
        match &mut object {
            Value::Array(items) if !items.is_empty() => {
                let index = self.random.below(items.len());
                items[index] = self.with_random_place(&schema["items"], &items[index]);
            }
            Value::Object(fields) => {
                let known = schema["properties"].as_object().into_iter().flatten();
                let known: Vec<_> = known.filter(|(name, _)| !name.starts_with('_')).collect();
                if known.is_empty() {
                    return object;
                }
                let (name, inner) = *self.random.pick(&known);
                let value = match fields.get(name) {
                    Some(inside @ (Value::Object(_) | Value::Array(_))) => {
                        self.with_random_place(inner, inside)
                    }
                    _ => self.value(inner, 4),
                };
                fields.insert(name.clone(), value);
            }
            _ => return self.value(&schema, 4),
        }
        object
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
            return if self.breaks("enum") {
                json!("another")
            } else {
                self.random.pick(values).clone()
            };
        }
        if schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string" {
            return if self.random.once_in(2) {
                json!(self.random.below(3000))
            } else {
                self.text(&schema)
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
            let is_wanted = if required.contains(&name.as_str()) {
                !(self.random.once_in(3) && self.breaks("required"))
            } else {
                depth < 6 && self.random.once_in(if depth < 2 { 2 } else { 3 })
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
        const WORDS: [&str; 22] = [
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
            "世",
            "b c",
            "az",
            "YWJj",
        ];
        let keyword = ["pattern", "minLength", "maxLength", "format"]
            .into_iter()
            .find(|name| schema.get(name).is_some());
        let breaks = keyword.is_some_and(|keyword| self.breaks(keyword));
        let fits = |word: &&str| {
            let count = word.chars().count() as u64;
            let pattern = schema["pattern"]
                .as_str()
                .and_then(|pattern| regex::Regex::new(pattern).ok());
            schema["minLength"].as_u64().is_none_or(|least| count >= least)
                && schema["maxLength"].as_u64().is_none_or(|most| count <= most)
                && pattern.is_none_or(|pattern| pattern.is_match(word))
                && match schema["format"].as_str() {
                    Some("date-time") => word.starts_with("2026"),
                    Some("byte") => *word == "YWJj",
                    _ => true,
                }
        };
        let fitting: Vec<&str> = WORDS.into_iter().filter(|word| fits(word) != breaks).collect();
        if fitting.is_empty() {
            json!(self.random.pick(&WORDS))
        } else {
            json!(self.random.pick(&fitting))
        }
    }

    fn number(&mut self, schema: &Value, is_whole: bool) -> Value {
        let keyword = ["minimum", "maximum", "multipleOf"]
            .into_iter()
            .find(|name| schema.get(name).is_some());
        let breaks = keyword.is_some_and(|keyword| self.breaks(keyword));
        let all: &[f64] = if is_whole {
            &[-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 8.0, 9.0, 10.0, 11.0, 80.0, 4_000.0]
        } else {
            &[0.0, 0.25, 0.5, 1.5, 99.5, 99.75]
        };
        let fits = |number: &f64| {
            let limit = |name: &str| schema[name].as_f64();
            limit("minimum").is_none_or(|least| *number >= least)
                && limit("maximum").is_none_or(|most| {
                    if schema["exclusiveMaximum"] == true {
                        *number < most
                    } else {
                        *number <= most
                    }
                })
                && limit("multipleOf").is_none_or(|step| number % step == 0.0)
        };
        let fitting: Vec<f64> = all
            .iter()
            .copied()
            .filter(|number| fits(number) != breaks)
            .collect();
        let number = *self.random.pick(if fitting.is_empty() { all } else { &fitting });
        if is_whole {
            json!(number as i64)
        } else {
            json!(number)
        }
    }
}
