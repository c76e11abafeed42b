#include <stdlib.h>

#include "check.h"
#include "cli/cli.h"

// ---- Helpers

static const rabbet_option_t options[] = {
    {"--shapes", RABBET_OPTION_VALUE, "NAME:..", "sizes"},
    {"--inputs", RABBET_OPTION_LIST, "FILE", "arrays"},
    {"--output", RABBET_OPTION_VALUE, "FILE", "where to"},
    {"--seed", RABBET_OPTION_VALUE, "N", "of random inputs"},
    {"--duration", RABBET_OPTION_VALUE, "SECONDS", "at least"},
    {"--json", RABBET_OPTION_FLAG, NULL, "print JSON"},
};

static const rabbet_command_t command = {
    .name = "probe",
    .operands = "PLAN [NAME]",
    .summary = "for tests",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .min_operands = 1,
    .max_operands = 2,
};

static rabbet_arguments_t arguments;

// Words of the command line end with NULL.
static rabbet_status_t parse(const char* const* words) {
  int argc = 0;
  while (words[argc])
    ++argc;
  return rabbet_arguments_parse(&command, argc, (char**)words, &arguments);
}
#define PARSE(...) parse((const char* const[]){__VA_ARGS__, NULL})

// ---- Accepted

static void forms(void** state) {
  (void)state;
  RABBET_EXPECT_OK(PARSE("a.plan", "--shapes", "x:1x3", "--seed=7", "--json",
                         "-o", "y.npz", "--inputs", "a=b.npy", "--inputs=c",
                         "name"));
  assert_int_equal(arguments.operand_count, 2);
  assert_string_equal(arguments.operands[0], "a.plan");
  assert_string_equal(arguments.operands[1], "name");
  assert_string_equal(rabbet_argument(&arguments, "--shapes"), "x:1x3");
  assert_string_equal(rabbet_argument(&arguments, "--seed"), "7");
  assert_string_equal(rabbet_argument(&arguments, "--output"), "y.npz");
  assert_true(rabbet_argument_flag(&arguments, "--json"));
  assert_null(rabbet_argument(&arguments, "--duration"));
  assert_null(rabbet_argument(&arguments, "--unknown"));
  size_t count = 0;
  const char* const* inputs =
      rabbet_argument_list(&arguments, "--inputs", &count);
  assert_int_equal(count, 2);
  assert_string_equal(inputs[0], "a=b.npy");
  assert_string_equal(inputs[1], "c");
}

static void last_value_counts(void** state) {
  (void)state;
  RABBET_EXPECT_OK(PARSE("p", "--seed", "1", "--seed", "2"));
  assert_string_equal(rabbet_argument(&arguments, "--seed"), "2");
}

static void operands_with_dashes(void** state) {
  (void)state;
  RABBET_EXPECT_OK(PARSE("--", "--json", "-o"));
  assert_string_equal(arguments.operands[0], "--json");
  assert_string_equal(arguments.operands[1], "-o");
  RABBET_EXPECT_OK(PARSE("-"));
  assert_string_equal(arguments.operands[0], "-");
  // A value may begin with a dash, and be empty.
  RABBET_EXPECT_OK(PARSE("p", "--output", "-x", "--shapes="));
  assert_string_equal(rabbet_argument(&arguments, "--output"), "-x");
  assert_string_equal(rabbet_argument(&arguments, "--shapes"), "");
}

// ---- Refused

static void refused(void** state) {
  (void)state;
  const rabbet_status_code_t code = RABBET_STATUS_INVALID_ARGUMENT;
  RABBET_EXPECT_ERROR(PARSE("p", "--shape", "x:1"), code, "'--shape'");
  RABBET_EXPECT_ERROR(PARSE("p", "--shape", "x:1"), code, "--shapes");
  RABBET_EXPECT_ERROR(PARSE("p", "--shape=x:1"), code, "'--shape'");
  RABBET_EXPECT_ERROR(PARSE("p", "-x"), code, "'-x'");
  RABBET_EXPECT_ERROR(PARSE("p", "--json=1"), code, "--json takes no value");
  RABBET_EXPECT_ERROR(PARSE("p", "--seed"), code, "--seed needs a value: N");
  RABBET_EXPECT_ERROR(PARSE("p", "-o"), code, "--output needs a value");
  RABBET_EXPECT_ERROR(PARSE("p", "q", "r"), code, "'r' is one operand too");
  RABBET_EXPECT_ERROR(PARSE("--json"), code, "PLAN [NAME] is missing");
}

static void too_many_values(void** state) {
  (void)state;
  const char* words[2 * RABBET_CLI_MAX_VALUES + 4] = {"p"};
  size_t count = 1;
  for (int i = 0; i < RABBET_CLI_MAX_VALUES + 1; ++i) {
    words[count++] = "--inputs";
    words[count++] = "x";
  }
  RABBET_EXPECT_ERROR(parse(words), RABBET_STATUS_INVALID_ARGUMENT,
                      "--inputs is given more than");
  words[count - 2] = NULL;
  RABBET_EXPECT_OK(parse(words));
}

// ---- Numbers

static void integers(void** state) {
  (void)state;
  int64_t value = 0;
  RABBET_EXPECT_OK(PARSE("p"));
  RABBET_EXPECT_OK(rabbet_argument_int(&arguments, "--seed", 0, 9, 5, &value));
  assert_int_equal(value, 5);
  RABBET_EXPECT_OK(PARSE("p", "--seed", "9"));
  RABBET_EXPECT_OK(rabbet_argument_int(&arguments, "--seed", 0, 9, 5, &value));
  assert_int_equal(value, 9);
  static const char* const wrong[] = {
      "", "x", "3x", "10", "-1", "1.0", "99999999999999999999"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
    RABBET_EXPECT_OK(PARSE("p", "--seed", wrong[i]));
    RABBET_EXPECT_ERROR(
        rabbet_argument_int(&arguments, "--seed", 0, 9, 5, &value),
        RABBET_STATUS_INVALID_ARGUMENT, "is not an integer from 0 to 9");
  }
}

static void seconds(void** state) {
  (void)state;
  double value = 0;
  RABBET_EXPECT_OK(PARSE("p", "--duration", "0.25"));
  RABBET_EXPECT_OK(
      rabbet_argument_seconds(&arguments, "--duration", 3, &value));
  assert_float_equal(value, 0.25, 0);
  static const char* const wrong[] = {"", "x", "1s", "-1", "nan", "inf"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
    RABBET_EXPECT_OK(PARSE("p", "--duration", wrong[i]));
    RABBET_EXPECT_ERROR(
        rabbet_argument_seconds(&arguments, "--duration", 3, &value),
        RABBET_STATUS_INVALID_ARGUMENT, "is not a number of seconds");
  }
}

// ---- Help

// Every option stands in the help of its command, and fits the arrays of parsed
// options.
static void help_lists_options(void** state) {
  (void)state;
  const rabbet_command_t* const commands[] = {
      &rabbet_command_build,   &rabbet_command_run, &rabbet_command_bench,
      &rabbet_command_inspect, &rabbet_command_ops, &rabbet_command_version};
  for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); ++i) {
    char* text = NULL;
    size_t size = 0;
    FILE* file = open_memstream(&text, &size);
    rabbet_command_help(commands[i], file);
    fclose(file);
    assert_non_null(strstr(text, commands[i]->name));
    assert_true(commands[i]->option_count <=
                sizeof(arguments.counts) / sizeof(arguments.counts[0]));
    for (size_t k = 0; k < commands[i]->option_count; ++k)
      assert_non_null(strstr(text, commands[i]->options[k].name));
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forms),
      cmocka_unit_test(last_value_counts),
      cmocka_unit_test(operands_with_dashes),
      cmocka_unit_test(refused),
      cmocka_unit_test(too_many_values),
      cmocka_unit_test(integers),
      cmocka_unit_test(seconds),
      cmocka_unit_test(help_lists_options),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
