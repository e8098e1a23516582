//! A CEL expression with bounds: its length, its nesting, and its cost for the value that it is evaluated on.
//! CEL has no loops except those over lists, no input and no output; the cost is limited before an expression
//! is evaluated.

use std::{collections::HashMap, sync::Arc};

use cel::{
    Context, Env, ExecutionError, Program, Value as CelValue,
    common::ast::{EntryExpr, Expr, IdedExpr, operators},
    objects::{Key, Map},
};
use serde_json::Value;

/// The maximum length of an expression in bytes.
pub const LONGEST: usize = 4096;
/// The maximum nesting of an expression.
const DEEPEST: u32 = 60;
/// The stack size of the parser in bytes; only the used part is allocated.
const PARSER_STACK: usize = 256 * 1024 * 1024;
/// The maximum cost of an expression: its size times the iterations of its innermost loop.
const COST: u64 = 5_000_000;
/// The maximum size of the texts that concatenations make, in bytes.
const TEXT: u64 = 64 * 1024 * 1024;

/// A parsed expression.
#[derive(Debug)]
pub struct CelExpression {
    program: Program,
    size: u64,
    /// The nesting of loops.
    loops: u32,
    /// The number of concatenations: each may double a list.
    additions: u64,
    /// The longest list literal in the expression.
    longest: u64,
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CelError {
    /// A field or an item does not exist.
    #[error("{0}")]
    Missing(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl CelExpression {
    /// Parses an expression.
    ///
    /// # Errors
    /// Too long, nested too deeply, or not CEL; in one line.
    pub fn compile(source: &str) -> Result<Self, String> {
        Self::compile_with(source, &Env::stdlib())
    }

    /// The same with the macros of an environment.
    ///
    /// # Errors
    /// As [`CelExpression::compile`].
    pub fn compile_with(source: &str, env: &Env) -> Result<Self, String> {
        if source.len() > LONGEST {
            return Err(format!("an expression may have at most {LONGEST} bytes"));
        }
        // The parser recurses as deep as the expression, before the limit can be checked: it gets a stack
        // that is large enough.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
            let parsing = thread
                .spawn_scoped(scope, || Self::parse(source, env))
                .map_err(|error| error.to_string())?;
            parsing.join().unwrap_or_else(|_| Err("not CEL".to_owned()))
        })
    }

    /// The names of the functions that it calls, operators included.
    pub fn functions(&self) -> Vec<String> {
        let references = self.program.references();
        references.functions().into_iter().map(str::to_owned).collect()
    }

    fn parse(source: &str, env: &Env) -> Result<Self, String> {
        let program = env.compile(source).map_err(|error| {
            let text = error.to_string();
            text.lines().next().unwrap_or("not CEL").to_owned()
        })?;
        let mut shape = Shape::default();
        shape.walk(program.expression(), 0, 0);
        if shape.deepest > DEEPEST {
            return Err(format!("nested more than {DEEPEST} levels deep"));
        }
        Ok(Self {
            program,
            size: shape.size,
            loops: shape.loops,
            additions: shape.additions,
            longest: shape.longest,
        })
    }

    /// The value for a context with values of this extent.
    ///
    /// # Errors
    /// Too costly for this context, or the evaluation failed.
    pub fn evaluate(&self, context: &Context, extent: CostInput) -> Result<CelValue, CelError> {
        let rounds = extent
            .entries
            .max(self.longest)
            .max(1)
            .saturating_mul(self.additions + 1);
        let cost = rounds.saturating_pow(self.loops).saturating_mul(self.size);
        if cost > COST {
            return Err(CelError::Other(format!(
                "too costly for this object: {} loops within each other over up to {rounds} entries",
                self.loops
            )));
        }
        let copies = rounds.saturating_pow(self.loops).saturating_mul(self.additions);
        if copies.saturating_mul(extent.text) > TEXT {
            return Err(CelError::Other(format!(
                "too costly for this object: it joins texts of up to {} bytes up to {copies} times",
                extent.text
            )));
        }
        self.program.execute(context).map_err(|error| {
            let text = error.to_string().chars().take(300).collect();
            match error {
                ExecutionError::NoSuchKey(_) | ExecutionError::IndexOutOfBounds(_) => CelError::Missing(text),
                _ => CelError::Other(text),
            }
        })
    }

    /// Returns true if it is true.
    ///
    /// # Errors
    /// As [`CelExpression::evaluate`]; or it gives something else than true or false.
    pub fn holds(&self, context: &Context, extent: CostInput) -> Result<bool, CelError> {
        match self.evaluate(context, extent)? {
            CelValue::Bool(answer) => Ok(answer),
            other => Err(CelError::Other(format!(
                "it gives {}, not true or false",
                other.type_of()
            ))),
        }
    }
}

/// The quantities that limit the cost of an expression.
#[derive(Default)]
struct Shape {
    size: u64,
    loops: u32,
    additions: u64,
    longest: u64,
    deepest: u32,
}

impl Shape {
    /// `level` is the nesting of the expression; `depth` that of the loops around it.
    fn walk(&mut self, expression: &IdedExpr, level: u32, depth: u32) {
        self.size += 1;
        self.loops = self.loops.max(depth);
        self.deepest = self.deepest.max(level);
        let next = level + 1;
        match &expression.expr {
            Expr::Call(call) => {
                self.additions += u64::from(call.func_name == operators::ADD);
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    self.walk(part, next, depth);
                }
            }
            Expr::Comprehension(comprehension) => {
                self.walk(&comprehension.iter_range, next, depth);
                self.walk(&comprehension.accu_init, next, depth);
                self.walk(&comprehension.result, next, depth);
                let before = self.additions;
                self.walk(&comprehension.loop_cond, next, depth + 1);
                self.walk(&comprehension.loop_step, next, depth + 1);
                // `map` and `filter` append to a list in each iteration, which may copy it.
                if self.additions > before {
                    self.loops = self.loops.max(depth + 2);
                }
            }
            Expr::List(list) => {
                self.longest = self.longest.max(list.elements.len() as u64);
                list.elements
                    .iter()
                    .for_each(|element| self.walk(element, next, depth));
            }
            Expr::Map(map) => {
                self.longest = self.longest.max(map.entries.len() as u64);
                map.entries
                    .iter()
                    .for_each(|entry| self.walk_entry(&entry.expr, next, depth));
            }
            Expr::Struct(made) => {
                made.entries
                    .iter()
                    .for_each(|entry| self.walk_entry(&entry.expr, next, depth));
            }
            Expr::Select(select) => self.walk(&select.operand, next, depth),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }

    fn walk_entry(&mut self, entry: &EntryExpr, level: u32, depth: u32) {
        match entry {
            EntryExpr::StructField(field) => self.walk(&field.value, level, depth),
            EntryExpr::MapEntry(entry) => {
                self.walk(&entry.key, level, depth);
                self.walk(&entry.value, level, depth);
            }
        }
    }
}

/// Integers are `int` whatever their sign, as in Kubernetes.
pub fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => CelValue::Int(whole),
            None => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let entry = |(key, value): (&String, &Value)| (Key::String(Arc::new(key.clone())), to_cel(value));
            let map: HashMap<_, _> = fields.iter().map(entry).collect();
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

/// What limits the cost of an expression for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostInput {
    /// The length of the longest list or map.
    pub entries: u64,
    /// The length of the longest text in bytes.
    pub text: u64,
}

impl CostInput {
    /// The extent of a value.
    pub fn measure(value: &Value) -> Self {
        match value {
            Value::Array(items) => items
                .iter()
                .fold(Self::with(items.len()), |all, item| all.and(item)),
            Value::Object(fields) => fields.iter().fold(Self::with(fields.len()), |all, (key, value)| {
                all.and_text(key).and(value)
            }),
            Value::String(text) => Self::default().and_text(text),
            _ => Self::default(),
        }
    }

    fn with(entries: usize) -> Self {
        Self {
            entries: entries as u64,
            text: 0,
        }
    }

    /// The extent of two values beside each other.
    #[must_use]
    pub fn and(self, value: &Value) -> Self {
        let other = Self::measure(value);
        Self {
            entries: self.entries.max(other.entries),
            text: self.text.max(other.text),
        }
    }

    fn and_text(self, text: &str) -> Self {
        Self {
            text: self.text.max(text.len() as u64),
            ..self
        }
    }
}
