//! What is written down of one history.

/// Counts what happens, and tells it if somebody wants to read it.
#[derive(Debug, Default)]
pub struct Record {
    /// Steps that were begun.
    pub(super) steps: u64,
    /// Faults, by kind.
    pub(super) faults: Vec<u64>,
    /// The step that was begun last; none after the last one.
    at: Option<u32>,
    rested: bool,
    lines: Option<Vec<String>>,
}

impl Record {
    /// One that tells.
    pub fn telling() -> Self {
        Self { lines: Some(Vec::new()), ..Self::default() }
    }

    pub(super) fn begin(&mut self, kinds: usize) {
        let lines = self.lines.take().map(|_| Vec::new());
        let mut faults = std::mem::take(&mut self.faults);
        faults.clear();
        faults.resize(kinds, 0);
        *self = Self { faults, lines, ..Self::default() };
    }

    /// A step begins.
    pub fn step(&mut self, step: u32) {
        self.at = Some(step);
        self.steps += 1;
    }

    /// No more faults: what is left is to come to rest.
    pub fn rest(&mut self) {
        self.rested = true;
        self.say(|| "no more faults".to_owned());
    }

    /// A fault of this kind happens.
    pub fn fault(&mut self, kind: usize) {
        if self.faults.len() <= kind {
            self.faults.resize(kind + 1, 0);
        }
        self.faults[kind] += 1;
    }

    /// Something happens that belongs into the timeline.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        let Some(lines) = &mut self.lines else { return };
        let at = match self.at {
            _ if self.rested => "rest".to_owned(),
            Some(step) => step.to_string(),
            None => String::new(),
        };
        lines.push(format!("{at:>5}  {}", line()));
    }

    /// Whether anybody reads what is said.
    pub fn tells(&self) -> bool {
        self.lines.is_some()
    }

    /// The steps that were needed to get where the history ended.
    pub(super) fn reached(&self) -> u32 {
        self.at.map_or(0, |step| step + 1)
    }

    pub(super) fn take_lines(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
