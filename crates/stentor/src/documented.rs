//! Every line of the pages that begins with `stentor` is parsed as the command would parse it.
//!
//! Nothing is run. A line in a fragment must be complete; what stands in the text may leave
//! arguments out, and has words in capitals for values.

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::Cli;
use pages::{fragments, pages};

#[path = "../tests/e2e/support/pages.rs"]
#[allow(dead_code, reason = "the other test programs need the rest of it")]
mod pages;

#[test]
fn every_command_in_a_fragment_is_accepted() {
    let mut refused = Vec::new();
    let mut count = 0;
    for fragment in fragments(&["console", "sh"]) {
        for line in fragment.commands() {
            for words in commands(&line) {
                count += 1;
                let error = Cli::try_parse_from(&words).err();
                refused.extend(error.map(|error| format!("{}: {line}\n{error}", fragment.place)));
            }
        }
    }
    println!("{count} lines of stentor in fragments");
    assert!(count >= 45, "only {count} lines");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_command_in_the_text_is_known() {
    let mut refused = Vec::new();
    let mut count = 0;
    for page in pages() {
        let prose = page.prose().replace('\n', " ");
        for span in prose.split('`').skip(1).step_by(2).filter(|span| span.starts_with("stentor "))
        {
            for words in commands(span) {
                count += 1;
                let Err(error) = Cli::try_parse_from(&words) else { continue };
                if !is_incomplete(&error) {
                    refused.push(format!("{}: {span}\n{error}", page.path));
                }
            }
        }
    }
    println!("{count} commands in the text");
    assert!(count >= 75, "only {count} commands");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Whether an argument or the value of one is missing, and nothing else is wrong.
fn is_incomplete(error: &clap::Error) -> bool {
    use ErrorKind::{
        DisplayHelpOnMissingArgumentOrSubcommand, InvalidValue, MissingRequiredArgument,
        MissingSubcommand,
    };
    match error.kind() {
        DisplayHelpOnMissingArgumentOrSubcommand | MissingRequiredArgument | MissingSubcommand => {
            true
        }
        InvalidValue => error.to_string().contains("none was supplied"),
        _ => false,
    }
}

/// The commands of `stentor` in a line of shell, in words: without variables in front, without
/// redirections and comments, and with `1` for what the shell would put in.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '$') => {
                word.get_or_insert_default().push('1');
                if rest.next_if_eq(&'(').is_some() {
                    rest.by_ref().find(|c| *c == ')');
                } else {
                    while rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_').is_some() {}
                }
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | '&' | ';' | '>' | '<') => {
                // The number of a stream belongs to the redirection behind it.
                let is_stream = c == '>' && word.as_deref() == Some("2");
                let ended = word.take().filter(|_| !is_stream);
                found.last_mut().expect("there is one").extend(ended);
                match c {
                    ' ' => {}
                    '>' | '<' => found.last_mut().expect("there is one").push(c.to_string()),
                    _ => found.push(Vec::new()),
                }
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    found.last_mut().expect("there is one").extend(word);
    found.into_iter().filter_map(own).collect()
}

/// Takes variables and redirections out of a command, and returns it if it runs `stentor`.
fn own(words: Vec<String>) -> Option<Vec<String>> {
    let is_variable = |word: &String| {
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase()))
    };
    let mut is_file = false;
    let words = words.into_iter().skip_while(|word| is_variable(word) || word == "sudo");
    let words = words.filter(|word| {
        let is_arrow = word == ">" || word == "<";
        !std::mem::replace(&mut is_file, is_arrow) && !is_arrow
    });
    let placeholder = |word: String| match word.as_str() {
        "TOPIC" => "/topic".to_owned(),
        name if !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase()) => "1".to_owned(),
        _ => word,
    };
    let words: Vec<String> = words.map(placeholder).collect();
    (words.first().is_some_and(|word| word == "stentor")).then_some(words)
}

#[test]
fn shell_is_taken_apart() {
    let line =
        "A=1 stentor pub '/a b' \"c $X\" --rate $(a b) 2> f >> g | jq '.x' && stentor sub N # n";
    let words = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(commands(line), [words("stentor|pub|/a b|c 1|--rate|1"), words("stentor|sub|1")]);
    let known = |line: &str| {
        let error = Cli::try_parse_from(&commands(line)[0]).err();
        error.is_none_or(|error| is_incomplete(&error))
    };
    assert!(known("stentor pub") && known("stentor serve --expect N"));
    assert!(!known("stentor serve --expekt N") && !known("stentor nonsense"));
}
