//! Converts JSON to CEL values. Strings are borrowed, and copies of a list or a map share one reference-counted
//! value: the lists and maps of the `cel` crate are copied entirely for each item of a loop.

use std::{collections::HashMap, sync::Arc};

use cel::{
    ExecutionError,
    common::{
        traits::{self, Adder, Comparer, Container, Indexer, Iterable, Sizer, Zeroer},
        types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, Type},
        value::{Builtin, BuiltinRef, CowVal, Val},
    },
};
use serde_json::Value;

/// Converts a JSON value. All integers become `int`, as in Kubernetes, and never `uint`.
pub fn to_cel(value: &Value) -> Box<dyn Val + '_> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(flag) => Box::new(CelBool::from(*flag)),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Box::new(CelInt::from(whole)),
            None => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(items) => shared_list(items.iter().map(to_cel).collect()),
        Value::Object(fields) => {
            let entries = fields.iter();
            shared_map(
                entries
                    .map(|(key, value)| (CelMapKey::from(key.as_str()), to_cel(value)))
                    .collect(),
            )
        }
    }
}

/// Creates a list whose copies share the items.
pub fn shared_list<'v>(items: Vec<Box<dyn Val + 'v>>) -> Box<dyn Val + 'v> {
    Box::new(Shared::new(CelList::from(items), Vec::new()))
}

/// Creates a map whose copies share the entries. Loops visit the keys in sorted order, so that the same input gives
/// the same messages; maps of the `cel` crate have no order.
pub fn shared_map<'v>(entries: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>>) -> Box<dyn Val + 'v> {
    let mut keys: Vec<_> = entries.keys().cloned().collect();
    keys.sort();
    Box::new(Shared::new(CelMap::from(entries), keys))
}

/// A string, a list or a map that copies share. For the `cel` crate it behaves like the value itself.
#[derive(Debug)]
struct Shared<'k, C>(Arc<Held<'k, C>>);

#[derive(Debug)]
struct Held<'k, C> {
    value: C,
    /// The sorted keys of a map.
    keys: Vec<CelMapKey<'k>>,
}

impl<'k, C: Val + Clone> Shared<'k, C> {
    fn new(value: C, keys: Vec<CelMapKey<'k>>) -> Self {
        Self(Arc::new(Held { value, keys }))
    }

    fn indexer<'b, 'v>(&'b self) -> Result<&'b (dyn Indexer + 'v), ExecutionError>
    where
        Self: 'v,
    {
        let indexer = self.0.value.as_indexer();
        indexer.ok_or_else(|| ExecutionError::UnexpectedType {
            got: self.get_type().name().to_owned(),
            want: "a list or a map".to_owned(),
        })
    }
}

impl<C: Val + Clone> Val for Shared<'_, C> {
    fn get_type(&self) -> &Type {
        self.0.value.get_type()
    }

    fn cel_type() -> &'static Type {
        C::cel_type()
    }

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        self.0.value.as_adder()
    }

    fn as_comparer(&self) -> Option<&dyn Comparer> {
        self.0.value.as_comparer()
    }

    fn as_container(&self) -> Option<&dyn Container> {
        self.0.value.as_container()
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        self.0.value.as_indexer().is_some().then_some(self)
    }

    fn into_indexer<'v>(self: Box<Self>) -> Option<Box<dyn Indexer + 'v>>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        if self.0.keys.is_empty() {
            self.0.value.as_iterable()
        } else {
            Some(self)
        }
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        self.0.value.as_sizer()
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        self.0.value.as_zeroer()
    }

    fn equals(&self, other: &dyn Val) -> bool {
        self.0.value.equals(other)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(Self(Arc::clone(&self.0)))
    }

    fn as_builtin<'b, 'v>(&'b self) -> BuiltinRef<'b, 'v>
    where
        Self: 'v,
    {
        self.0.value.as_builtin()
    }

    fn into_builtin<'v>(self: Box<Self>) -> Option<Builtin<'v>>
    where
        Self: 'v,
    {
        // The items are shared, so this copies only one level.
        Box::new(self.0.value.clone()).into_builtin()
    }
}

impl<C: Val + Clone> Iterable for Shared<'_, C> {
    fn iter<'b, 'v>(&'b self) -> Box<dyn traits::Iterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Keys(self.0.keys.iter()))
    }
}

struct Keys<'b, 'k>(std::slice::Iter<'b, CelMapKey<'k>>);

impl<'b, 'k: 'v, 'v> traits::Iterator<'b, 'v> for Keys<'b, 'k> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|key| key.inner() as &(dyn Val + 'v))
    }
}

impl<C: Val + Clone> Indexer for Shared<'_, C> {
    fn get<'b, 'v>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.indexer()?.get(index)
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        Ok(self.indexer()?.get(index)?.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use cel::{Context, Env, Value as CelValue};
    use serde_json::json;
    use std::sync::Arc;

    use super::*;

    fn evaluate(expression: &str, value: &Value) -> CelValue {
        let env = Env::stdlib();
        let program = env.compile(expression).unwrap();
        let mut context = Context::with_env(Arc::new(env));
        context.add_variable_as_val("x", to_cel(value));
        program.execute(&context).unwrap()
    }

    /// To an expression it is a list or a map of the crate.
    #[test]
    fn a_shared_value_does_what_a_value_of_the_crate_does() {
        let value = json!({"list": [1, -2, "c", 1.5, null, [true]], "map": {"a": {"b": "t"}}, "none": {}});
        for (expression, wanted) in [
            (
                "x.list[1] == -2 && x.map.a.b == 't' && x['map']['a'] == {'b': 't'}",
                true,
            ),
            (
                "x.list == [1, -2, 'c', 1.5, null, [true]] && x == x && x.map != x.none",
                true,
            ),
            ("[x.list, x.list][1][5][0] && {'k': x}['k'].map.a.b == 't'", true),
            (
                "x.list + [4] == [1, -2, 'c', 1.5, null, [true], 4] && [4] + x.list[5] == [4, true]",
                true,
            ),
            (
                "'a' in x.map && 'c' in x.list && !('b' in x.map) && !(7 in x.list)",
                true,
            ),
            (
                "has(x.map.a) && !has(x.map.c) && size(x.list) == 6 && x.none.size() == 0",
                true,
            ),
            (
                "x.map.all(k, x.map[k].b == 't') && x.list.exists(i, i == null)",
                true,
            ),
            (
                "x.list.filter(i, type(i) == list)[0][0] && x.list.map(i, [i])[1] == [-2]",
                true,
            ),
            (
                "type(x) == map && type(x.list[3]) == double && x.list[0] == 1u",
                true,
            ),
            (
                "x.?map.?c.orValue('d') == 'd' && x.?map.?a.?b.value() == 't'",
                true,
            ),
        ] {
            assert_eq!(
                evaluate(expression, &value),
                CelValue::Bool(wanted),
                "{expression}"
            );
        }
        let CelValue::List(list) = evaluate("x.list", &value) else {
            panic!("not a list")
        };
        assert_eq!(list.len(), 6);
        assert!(matches!(evaluate("x", &value), CelValue::Map(map) if map.map.len() == 3));
    }

    #[test]
    fn a_loop_goes_through_keys_in_their_order() {
        let keys: Vec<String> = (0..30).map(|n| format!("k{n:02}")).collect();
        let entries = keys.iter().rev().map(|key| (key.clone(), json!(1)));
        let value = Value::Object(entries.collect());
        let CelValue::List(found) = evaluate("x.map(k, k)", &value) else {
            panic!("not a list")
        };
        let wanted: Vec<_> = keys
            .into_iter()
            .map(|key| CelValue::String(Arc::new(key)))
            .collect();
        assert_eq!(*found, wanted);
    }
}
