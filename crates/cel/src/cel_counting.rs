//! The functions that count what one evaluation of a CEL expression does and makes, and end it at its limits.
//! `crates/cel/src/cel_bounds.rs` writes their calls into the expression. Copies of what is made are shared.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cel::{
    Context, ExecutionError, FunctionContext,
    common::{
        ast::operators,
        types::{CelBool, CelInt, CelList, CelMap, CelString, Kind, Type},
        value::{CowVal, StaticVal, Val},
    },
};

use nix::time::{ClockId, clock_gettime};

use crate::cel_value::{shared_list, shared_text};

/// The maximum size of the texts and lists that an evaluation makes, in bytes.
const MOST: u64 = 4 * 1024 * 1024;
/// The maximum number of steps: the parts of a loop's body, for each item.
const STEPS: u64 = 5_000_000;
/// The processor time that an evaluation may take. A busy machine does not count. Without optimization all is slower.
pub const EVALUATION_TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 100 });
/// After so many steps the time is looked at.
const STEPS_BETWEEN: u64 = 2_000;
/// With a text of so many bytes in its input, an expression has half of the steps.
const LONG_TEXT: u64 = 16 * 1024;
/// What an item of a list counts for, in bytes.
const ITEM: u64 = 16;
/// How many items are compared or read in one step.
const ITEMS_IN_STEP: u64 = 4;
/// So many bytes of a text are compared or read as fast as an item.
const TEXT_OF_ITEM: u64 = 1024;
/// The variable that holds what is left.
const LEFT: &str = "@left";

/// A function of a context that gets its arguments uncopied.
pub type CelFunction = Box<
    dyn for<'c, 'v> Fn(&mut FunctionContext<'c, 'v>) -> Result<CowVal<'c, 'v>, ExecutionError> + Send + Sync,
>;

type Answer<'c, 'v> = Result<CowVal<'c, 'v>, ExecutionError>;

/// Adds the functions that count to a context.
pub fn add_counting(context: &mut Context) {
    let functions: [(&str, CelFunction); 14] = [
        ("@step", Box::new(step)),
        ("@add", Box::new(add)),
        ("@replace", Box::new(replace)),
        ("@join", Box::new(join)),
        ("@printed", Box::new(printed)),
        ("@equal", Box::new(|call| equal(call, true))),
        ("@different", Box::new(|call| equal(call, false))),
        ("@searched", Box::new(searched)),
        ("@read", Box::new(|call| read(call, 1))),
        ("@squared", Box::new(|call| read(call, 2))),
        (
            "@sets.contains",
            Box::new(|call| sets(call, |all, some| within(all, some))),
        ),
        (
            "@sets.equivalent",
            Box::new(|call| sets(call, |one, two| within(one, two) && within(two, one))),
        ),
        (
            "@sets.intersects",
            Box::new(|call| sets(call, |one, two| one.iter().any(|item| is_in(item.as_ref(), two)))),
        ),
        (
            "@made",
            Box::new(|call| {
                let (left, [value]) = arguments(call)?;
                left.made(value)
            }),
        ),
    ];
    for (name, function) in functions {
        // A name that starts with `@` is in no library, which is the only way in which this fails.
        let _ = context.add_function::<CelFunction, _>(name, function);
    }
}

/// What an evaluation may still do and make.
#[derive(Debug, Clone)]
pub struct Left(Arc<Rest>);

#[derive(Debug)]
struct Rest {
    steps: AtomicU64,
    bytes: AtomicU64,
    exceeded: AtomicBool,
    /// The processor time of the thread at which the evaluation has to end.
    ends: Duration,
    /// The steps that were left when the time was looked at.
    looked: AtomicU64,
    is_late: AtomicBool,
}

static LEFT_TYPE: Type = Type::new_unspecified_type(LEFT);

impl Val for Left {
    fn get_type(&self) -> &Type {
        &LEFT_TYPE
    }

    fn cel_type() -> &'static Type {
        &LEFT_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

impl StaticVal for Left {}

impl Left {
    /// What one evaluation may do on an input whose longest text has so many bytes.
    pub fn new(longest_text: u64) -> Self {
        let steps = STEPS / (1 + longest_text / LONG_TEXT);
        Self(Arc::new(Rest {
            steps: AtomicU64::new(steps),
            bytes: AtomicU64::new(MOST),
            exceeded: AtomicBool::new(false),
            ends: processor_time() + EVALUATION_TIME,
            looked: AtomicU64::new(steps),
            is_late: AtomicBool::new(false),
        }))
    }

    /// Adds it to the variables of an evaluation.
    pub fn add_to(&self, context: &mut Context) {
        context.add_variable_as_val(LEFT, Box::new(self.clone()));
    }

    /// Returns true if something was not done. An operator may have absorbed that error.
    pub fn is_exceeded(&self) -> bool {
        self.0.exceeded.load(Ordering::Relaxed)
    }

    /// Returns true if it took too long.
    pub fn is_late(&self) -> bool {
        self.0.is_late.load(Ordering::Relaxed)
    }

    /// Counts steps, and looks at the time.
    fn step(&self, steps: u64) -> Result<(), ExecutionError> {
        self.reduce(&self.0.steps, steps)?;
        let left = self.0.steps.load(Ordering::Relaxed);
        if self.0.looked.load(Ordering::Relaxed).saturating_sub(left) >= STEPS_BETWEEN {
            self.0.looked.store(left, Ordering::Relaxed);
            if processor_time() > self.0.ends {
                self.0.is_late.store(true, Ordering::Relaxed);
                return Err(self.end());
            }
        }
        Ok(())
    }

    /// Ends the evaluation: a loop may absorb the error of one step.
    fn end(&self) -> ExecutionError {
        self.0.exceeded.store(true, Ordering::Relaxed);
        self.0.steps.store(0, Ordering::Relaxed);
        error("too costly for this object")
    }

    /// Counts bytes before they are made.
    fn take(&self, bytes: u64) -> Result<(), ExecutionError> {
        self.reduce(&self.0.bytes, bytes)
    }

    fn reduce(&self, rest: &AtomicU64, by: u64) -> Result<(), ExecutionError> {
        let left = rest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(by));
        left.map(drop).map_err(|_| self.end())
    }

    /// Counts items before they are compared or read.
    fn read(&self, items: u64) -> Result<(), ExecutionError> {
        self.step(items / ITEMS_IN_STEP)
    }

    /// The items in a value, or more than can be read.
    fn items(&self, value: &dyn Val) -> u64 {
        let most = self.0.steps.load(Ordering::Relaxed).saturating_add(1) * ITEMS_IN_STEP;
        let mut found = 0;
        add_items(value, most, &mut found);
        found
    }

    /// Counts a value that was made, and shares its copies. A borrowed value is not new.
    fn made<'c, 'v>(&self, value: CowVal<'c, 'v>) -> Answer<'c, 'v> {
        match value {
            CowVal::Borrowed(value) => Ok(CowVal::Borrowed(value)),
            CowVal::Owned(value) => Ok(CowVal::Owned(self.shared(value)?)),
        }
    }

    fn shared<'v>(&self, value: Box<dyn Val + 'v>) -> Result<Box<dyn Val + 'v>, ExecutionError> {
        if let Some(text) = value.downcast_ref::<CelString>() {
            // What is borrowed from the input is not new.
            if text.as_borrowed().is_some() {
                return Ok(value);
            }
            self.take(text.inner().len() as u64)?;
            return Ok(shared_text(text.inner().to_owned()));
        }
        if value.get_type().kind() != Kind::List {
            return Ok(value);
        }
        let items: Result<Vec<_>, _> = value.try_into();
        let items: Vec<Box<dyn Val + 'v>> = match items {
            Ok(items) => items,
            Err(other) => return Ok(other),
        };
        self.take(items.len() as u64 * ITEM)?;
        let items: Result<_, _> = items.into_iter().map(|item| self.shared(item)).collect();
        Ok(shared_list(items?))
    }
}

/// The processor time that this thread took so far: an evaluation stays on its thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn error(message: &str) -> ExecutionError {
    ExecutionError::function_error("limit", message)
}

/// The limit, and the arguments of a call.
fn arguments<'c, 'v, const N: usize>(
    call: &mut FunctionContext<'c, 'v>,
) -> Result<(Left, [CowVal<'c, 'v>; N]), ExecutionError> {
    let left = left(call)?;
    let arguments = std::mem::take(&mut call.args).try_into();
    Ok((left, arguments.map_err(|_| error("it needs other arguments"))?))
}

fn left(call: &FunctionContext<'_, '_>) -> Result<Left, ExecutionError> {
    let found = call.ptx.get_variable(LEFT);
    let left = found.as_ref().and_then(|value| value.downcast_ref::<Left>());
    left.cloned().ok_or_else(|| error("the evaluation has no limit"))
}

fn step<'c, 'v>(call: &mut FunctionContext<'c, 'v>) -> Answer<'c, 'v> {
    let (left, [value, weight]) = arguments(call)?;
    let weight = weight
        .downcast_ref::<CelInt>()
        .map_or(1, |weight| *weight.inner());
    left.step(u64::try_from(weight).unwrap_or(1))?;
    Ok(value)
}

fn add<'c, 'v>(call: &mut FunctionContext<'c, 'v>) -> Answer<'c, 'v> {
    let (limit, [one, two]) = arguments(call)?;
    if let (Some(one), Some(two)) = (one.downcast_ref::<CelString>(), two.downcast_ref::<CelString>()) {
        limit.take((one.inner().len() + two.inner().len()) as u64)?;
        return Ok(CowVal::Owned(shared_text(format!(
            "{}{}",
            one.inner(),
            two.inner()
        ))));
    }
    for value in [&one, &two] {
        let sizer = value.as_sizer().filter(|_| value.get_type().kind() == Kind::List);
        let items = sizer.map_or(0, |sizer| *sizer.size().inner());
        limit.take(u64::try_from(items).unwrap_or(0) * ITEM)?;
    }
    let adder = one.as_adder();
    let adder =
        adder.ok_or_else(|| ExecutionError::no_such_overload(operators::ADD, types_of(&[&one, &two])))?;
    let sum = adder.add(two.as_ref())?.into_owned();
    Ok(CowVal::Owned(sum))
}

fn types_of(values: &[&CowVal<'_, '_>]) -> Vec<String> {
    let types = values.iter().map(|value| value.get_type().name().to_owned());
    types.collect()
}

fn text<'b>(function: &str, value: &'b CowVal<'_, '_>) -> Result<&'b str, ExecutionError> {
    let text = value.downcast_ref::<CelString>();
    text.map(CelString::inner)
        .ok_or_else(|| ExecutionError::no_such_overload(function, types_of(&[value])))
}

/// `text.replace(old, new)`, or with the number of replacements.
fn replace<'c, 'v>(call: &mut FunctionContext<'c, 'v>) -> Answer<'c, 'v> {
    let limit = left(call)?;
    let [subject, old, new, rest @ ..] = call.args.as_slice() else {
        return Err(error("`replace` needs two texts"));
    };
    let subject = text("replace", subject)?;
    let (old, new) = (text("replace", old)?, text("replace", new)?);
    let most = match rest.first() {
        None => usize::MAX,
        Some(number) => {
            let number = number.downcast_ref::<CelInt>();
            let number = number.ok_or_else(|| error("`replace` needs a whole number"))?;
            usize::try_from(*number.inner()).unwrap_or(usize::MAX)
        }
    };
    let count = subject.matches(old).take(most).count() as u64;
    limit.take((subject.len() as u64).saturating_add(count.saturating_mul(new.len() as u64)))?;
    Ok(CowVal::Owned(shared_text(subject.replacen(old, new, most))))
}

/// `list.join()`, or with a separator.
fn join<'c, 'v>(call: &mut FunctionContext<'c, 'v>) -> Answer<'c, 'v> {
    let limit = left(call)?;
    let [list, rest @ ..] = call.args.as_slice() else {
        return Err(error("`join` needs a list"));
    };
    let separator = rest.first().map_or(Ok(""), |separator| text("join", separator))?;
    let iterable = list
        .as_iterable()
        .filter(|_| list.get_type().kind() == Kind::List);
    let mut items = iterable
        .ok_or_else(|| ExecutionError::no_such_overload("join", types_of(&[list])))?
        .iter();
    let mut joined = String::new();
    let mut first = true;
    while let Some(item) = items.next() {
        let item = item.downcast_ref::<CelString>();
        let item = item.ok_or_else(|| error("`join` needs a list of texts"))?.inner();
        let separator = if first { "" } else { separator };
        first = false;
        limit.take((separator.len() + item.len()) as u64)?;
        joined.push_str(separator);
        joined.push_str(item);
    }
    Ok(CowVal::Owned(shared_text(joined)))
}

/// Adds the items of a value to those that were found, as long as they are not more than the most.
fn add_items(value: &dyn Val, most: u64, found: &mut u64) {
    if *found > most {
        return;
    }
    *found += 1;
    if let Some(text) = value.downcast_ref::<CelString>() {
        *found += text.inner().len() as u64 / TEXT_OF_ITEM;
    } else if let Some(list) = value.downcast_ref::<CelList>() {
        for item in list.inner().iter() {
            if *found > most {
                return;
            }
            add_items(item.as_ref(), most, found);
        }
    } else if let Some(map) = value.downcast_ref::<CelMap>() {
        for item in map.inner().values() {
            if *found > most {
                return;
            }
            add_items(item.as_ref(), most, found);
        }
    }
}

fn truth<'c, 'v>(answer: bool) -> Answer<'c, 'v> {
    Ok(CowVal::owned(CelBool::from(answer)))
}

/// `==`, or `!=`. Lists and maps count by the smaller one.
fn equal<'c, 'v>(call: &mut FunctionContext<'c, 'v>, wanted: bool) -> Answer<'c, 'v> {
    let (left, [one, two]) = arguments(call)?;
    let is_large = |value: &CowVal<'_, '_>| matches!(value.get_type().kind(), Kind::List | Kind::Map);
    if is_large(&one) && is_large(&two) {
        left.read(left.items(one.as_ref()).min(left.items(two.as_ref())))?;
    }
    truth((one == two) == wanted)
}

/// What `in` searches: a list item by item.
fn searched<'c, 'v>(call: &mut FunctionContext<'c, 'v>) -> Answer<'c, 'v> {
    let (left, [value]) = arguments(call)?;
    if value.get_type().kind() == Kind::List {
        left.read(left.items(value.as_ref()))?;
    }
    Ok(value)
}

/// What a function goes through once, or for each of its items.
fn read<'c, 'v>(call: &mut FunctionContext<'c, 'v>, power: u32) -> Answer<'c, 'v> {
    let (left, [value]) = arguments(call)?;
    left.read(left.items(value.as_ref()).saturating_pow(power))?;
    Ok(value)
}

fn is_in(item: &dyn Val, list: &[Box<dyn Val + '_>]) -> bool {
    list.iter().any(|one| one.equals(item))
}

fn within<'v>(all: &[Box<dyn Val + 'v>], some: &[Box<dyn Val + 'v>]) -> bool {
    some.iter().all(|item| is_in(item.as_ref(), all))
}

/// A function of `sets`: it compares each item with each.
fn sets<'c, 'v>(
    call: &mut FunctionContext<'c, 'v>,
    answer: impl Fn(&[Box<dyn Val + 'v>], &[Box<dyn Val + 'v>]) -> bool,
) -> Answer<'c, 'v> {
    let (left, [one, two]) = arguments(call)?;
    left.read(left.items(one.as_ref()).saturating_mul(left.items(two.as_ref())))?;
    match (one.downcast_ref::<CelList>(), two.downcast_ref::<CelList>()) {
        (Some(one), Some(two)) => truth(answer(one.inner(), two.inner())),
        _ => Err(ExecutionError::no_such_overload("sets", types_of(&[&one, &two]))),
    }
}

/// Counts what `format` prints of a list, before it does.
fn printed<'c, 'v>(call: &mut FunctionContext<'c, 'v>) -> Answer<'c, 'v> {
    let (limit, [values]) = arguments(call)?;
    count(&limit, values.as_ref())?;
    Ok(values)
}

fn count(limit: &Left, value: &dyn Val) -> Result<(), ExecutionError> {
    limit.take(ITEM)?;
    if let Some(text) = value.downcast_ref::<CelString>() {
        return limit.take(text.inner().len() as u64);
    }
    if let Some(list) = value.downcast_ref::<CelList>() {
        return list
            .inner()
            .iter()
            .try_for_each(|item| count(limit, item.as_ref()));
    }
    match value.downcast_ref::<CelMap>() {
        None => Ok(()),
        Some(map) => map.inner().iter().try_for_each(|(key, value)| {
            count(limit, key.inner())?;
            count(limit, value.as_ref())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_ends_when_its_time_is_over() {
        let late = Left::new(0);
        assert!(late.step(STEPS_BETWEEN).is_ok() && !late.is_late());
        let began = processor_time();
        while processor_time() < began + EVALUATION_TIME {
            std::hint::black_box(began);
        }
        // The time is looked at once in a while.
        assert!(late.step(1).is_ok());
        assert!(late.step(STEPS_BETWEEN).is_err());
        assert!(late.is_late() && late.is_exceeded());
        assert!(late.step(1).is_err());
    }
}
