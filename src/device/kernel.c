#include "device/kernel.h"

#include "base/strbuf.h"

static rabbet_status_t kernel_refuse(const rabbet_kernel_class_t* kernel_class,
                                     const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(spec->allocator, &text);
  for (size_t i = 0; i < group->node_count; ++i)
    rabbet_strbuf_printf(&text, "%s'%s' (%s)", i > 0 ? " + " : "",
                         group->nodes[i].name, group->nodes[i].op->name);
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    const rabbet_group_value_t* value =
        &group->values[rabbet_group_boundary(group, i)];
    rabbet_strbuf_printf(&text, "%s%s %s",
                         i == group->input_count ? " to "
                         : i > 0                 ? ", "
                                                 : " from ",
                         rabbet_dtype_name(value->dtype),
                         rabbet_format_name(value->format));
  }
  rabbet_status_t status = RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED, "the kernel '%s' does not compute %s",
      kernel_class->name, rabbet_strbuf_text(&text));
  rabbet_strbuf_deinitialize(&text);
  return status;
}

bool rabbet_kernel_may_take(const rabbet_kernel_class_t* kernel_class,
                            const rabbet_group_t* group) {
  if (kernel_class->flags & RABBET_KERNEL_DOUBLE) return true;
  for (size_t i = 0; i < group->value_count; ++i)
    if (group->values[i].dtype == RABBET_DTYPE_DOUBLE) return false;
  return true;
}

rabbet_status_t rabbet_kernel_create(const rabbet_kernel_class_t* kernel_class,
                                     const rabbet_kernel_spec_t* spec,
                                     rabbet_kernel_t** out_kernel) {
  *out_kernel = NULL;
  if (!rabbet_kernel_may_take(kernel_class, spec->group) ||
      (kernel_class->takes && !kernel_class->takes(spec)))
    return kernel_refuse(kernel_class, spec);
  return kernel_class->create(spec, out_kernel);
}
