#include "base/status.h"

#include "check.h"
#include "faults/fault_allocator.h"

static void test_ok(void** state) {
  (void)state;
  assert_true(rabbet_is_ok(rabbet_ok()));
  assert_int_equal(rabbet_status_code(rabbet_ok()), RABBET_STATUS_OK);
  assert_string_equal(rabbet_status_message(rabbet_ok()), "ok");
  assert_null(rabbet_status_file(rabbet_ok()));
  assert_true(rabbet_is_ok(rabbet_status_annotate(rabbet_ok(), "note")));
  assert_true(rabbet_is_ok(rabbet_status_clone(rabbet_ok())));
  rabbet_status_free(rabbet_ok());
}

static void test_make(void** state) {
  (void)state;
  rabbet_status_t status =
      rabbet_status_make(RABBET_STATUS_NOT_FOUND, "a.c", 7, "no '%s'", "x");
  assert_false(rabbet_is_ok(status));
  assert_int_equal(rabbet_status_code(status), RABBET_STATUS_NOT_FOUND);
  assert_string_equal(rabbet_status_message(status), "no 'x'");
  assert_string_equal(rabbet_status_file(status), "a.c");
  assert_int_equal(rabbet_status_line(status), 7);
  rabbet_status_free(status);
}

// A plugin library that made the status may be gone when it is read.
static void test_file_is_copied(void** state) {
  (void)state;
  char file[] = "plugin.c";
  rabbet_status_t status =
      rabbet_status_make(RABBET_STATUS_PLUGIN, file, 1, "failed");
  memset(file, 'x', sizeof(file) - 1);
  assert_string_equal(rabbet_status_file(status), "plugin.c");
  rabbet_status_free(status);
}

static void test_code_names_are_distinct(void** state) {
  (void)state;
  for (int i = 0; i <= RABBET_STATUS_INTERNAL; ++i) {
    const char* name = rabbet_status_code_name((rabbet_status_code_t)i);
    assert_string_not_equal(name, "unknown status code");
    for (int k = 0; k < i; ++k)
      assert_string_not_equal(name,
                              rabbet_status_code_name((rabbet_status_code_t)k));
  }
  assert_string_equal(rabbet_status_code_name((rabbet_status_code_t)-1),
                      "unknown status code");
  assert_string_equal(rabbet_status_code_name((rabbet_status_code_t)99),
                      "unknown status code");
}

static void test_annotate(void** state) {
  (void)state;
  rabbet_status_t status = RABBET_STATUS(RABBET_STATUS_IO, "bad %d", 3);
  int line = rabbet_status_line(status);
  status = rabbet_status_annotate(status, "section %d", 2);
  status = RABBET_ANNOTATE(status, "loading '%s'", "x.plan");
  assert_string_equal(rabbet_status_message(status),
                      "loading 'x.plan': section 2: bad 3");
  assert_int_equal(rabbet_status_code(status), RABBET_STATUS_IO);
  assert_int_equal(rabbet_status_line(status), line);
  rabbet_status_free(status);
}

// Names in messages come out of files, and messages go to terminals.
static void test_messages_are_printable(void** state) {
  (void)state;
  rabbet_status_t status = RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                                         "no '%s'\n(%s)", "\x1b[2J", "\xff");
  assert_int_equal(rabbet_status_code(status), RABBET_STATUS_NOT_FOUND);
  assert_string_equal(rabbet_status_message(status), "no '\\x1b[2J'\n(\\xff)");
  assert_non_null(rabbet_status_file(status));
  int payload = 0;
  rabbet_status_set_payload(status, &payload, &payload, NULL);
  status = rabbet_status_annotate(status, "layer '%s'", "\x07");
  assert_string_equal(rabbet_status_message(status),
                      "layer '\\x07': no '\\x1b[2J'\n(\\xff)");
  assert_ptr_equal(rabbet_status_payload(status, &payload), &payload);
  rabbet_status_free(status);
}

static void test_join(void** state) {
  (void)state;
  rabbet_status_t first = RABBET_STATUS(RABBET_STATUS_IO, "first");
  rabbet_status_t second = RABBET_STATUS(RABBET_STATUS_INTERNAL, "second");
  rabbet_status_t both = rabbet_status_join(first, second);
  assert_int_equal(rabbet_status_code(both), RABBET_STATUS_IO);
  assert_string_equal(rabbet_status_message(both), "first; then: second");
  both = rabbet_status_join(rabbet_ok(), both);
  both = rabbet_status_join(both, rabbet_ok());
  assert_string_equal(rabbet_status_message(both), "first; then: second");
  rabbet_status_free(both);
  assert_true(rabbet_is_ok(rabbet_status_join(rabbet_ok(), rabbet_ok())));
}

static int destroyed;
static const char tag, other_tag;

static void count_destroy(void* payload) {
  destroyed += *(int*)payload;
}

static void test_payload_travels(void** state) {
  (void)state;
  destroyed = 0;
  int payload = 1;
  rabbet_status_t status = RABBET_STATUS(RABBET_STATUS_PLUGIN, "raised");
  rabbet_status_set_payload(status, &tag, &payload, count_destroy);
  status = rabbet_status_annotate(status, "layer 'a'");
  status =
      rabbet_status_join(status, RABBET_STATUS(RABBET_STATUS_IO, "and more"));
  assert_ptr_equal(rabbet_status_payload(status, &tag), &payload);
  assert_null(rabbet_status_payload(status, &other_tag));
  assert_int_equal(destroyed, 0);
  rabbet_status_free(status);
  assert_int_equal(destroyed, 1);
}

static void test_payload_is_replaced(void** state) {
  (void)state;
  destroyed = 0;
  int one = 1, ten = 10;
  rabbet_status_t status = RABBET_STATUS(RABBET_STATUS_PLUGIN, "raised");
  rabbet_status_set_payload(status, &tag, &one, count_destroy);
  rabbet_status_set_payload(status, &other_tag, &ten, count_destroy);
  assert_int_equal(destroyed, 1);
  assert_null(rabbet_status_payload(status, &tag));
  rabbet_status_free(status);
  assert_int_equal(destroyed, 11);
}

static void test_clone_shares_payload(void** state) {
  (void)state;
  destroyed = 0;
  int payload = 1;
  rabbet_status_t status = RABBET_STATUS(RABBET_STATUS_PLUGIN, "raised");
  rabbet_status_set_payload(status, &tag, &payload, count_destroy);
  rabbet_status_t clone = rabbet_status_clone(status);
  clone = rabbet_status_annotate(clone, "noted");
  assert_string_equal(rabbet_status_message(status), "raised");
  assert_string_equal(rabbet_status_message(clone), "noted: raised");
  assert_ptr_equal(rabbet_status_payload(clone, &tag), &payload);
  rabbet_status_free(status);
  assert_int_equal(destroyed, 0);
  assert_ptr_equal(rabbet_status_payload(clone, &tag), &payload);
  rabbet_status_free(clone);
  assert_int_equal(destroyed, 1);
}

static void test_out_of_memory(void** state) {
  (void)state;
  destroyed = 0;
  int payload = 1;
  rabbet_fault_allocator_t fault;
  rabbet_fault_initialize(0, true, &fault);
  rabbet_allocator_t allocator = rabbet_fault_allocator(&fault);
  rabbet_status_use_test_allocator(&allocator);
  rabbet_status_t bare = RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE, "lost");
  assert_int_equal(rabbet_status_code(bare), RABBET_STATUS_OUT_OF_RANGE);
  assert_string_equal(rabbet_status_message(bare), "out of range");
  assert_null(rabbet_status_file(bare));
  assert_int_equal(rabbet_status_line(bare), 0);
  rabbet_status_set_payload(bare, &tag, &payload, count_destroy);
  assert_int_equal(destroyed, 1);
  assert_null(rabbet_status_payload(bare, &tag));
  bare = rabbet_status_annotate(rabbet_status_clone(bare), "note");
  bare = rabbet_status_join(bare, RABBET_STATUS(RABBET_STATUS_IO, "more"));
  assert_int_equal(rabbet_status_code(bare), RABBET_STATUS_OUT_OF_RANGE);
  rabbet_status_free(bare);
  rabbet_status_use_test_allocator(NULL);
  rabbet_fault_deinitialize(&fault);
}

// Annotation and join that find no memory keep the message they had.
static void test_out_of_memory_later(void** state) {
  (void)state;
  rabbet_fault_allocator_t fault;
  rabbet_fault_initialize(2, true, &fault);
  rabbet_allocator_t allocator = rabbet_fault_allocator(&fault);
  rabbet_status_use_test_allocator(&allocator);
  rabbet_status_t first = RABBET_STATUS(RABBET_STATUS_IO, "first");
  rabbet_status_t second = RABBET_STATUS(RABBET_STATUS_IO, "second");
  first = rabbet_status_annotate(first, "note");
  first = rabbet_status_join(first, second);
  assert_string_equal(rabbet_status_message(first), "first");
  rabbet_status_free(first);
  rabbet_status_use_test_allocator(NULL);
  rabbet_fault_deinitialize(&fault);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ok),
      cmocka_unit_test(test_make),
      cmocka_unit_test(test_file_is_copied),
      cmocka_unit_test(test_code_names_are_distinct),
      cmocka_unit_test(test_annotate),
      cmocka_unit_test(test_messages_are_printable),
      cmocka_unit_test(test_join),
      cmocka_unit_test(test_payload_travels),
      cmocka_unit_test(test_payload_is_replaced),
      cmocka_unit_test(test_clone_shares_payload),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_out_of_memory_later),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
