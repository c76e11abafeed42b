// Parts of ONNX models: nodes with their attributes and graphs, tensors,
// descriptions of values.
#ifndef RABBET_SRC_ORTEP_WRITE_H_
#define RABBET_SRC_ORTEP_WRITE_H_

#include "base/strbuf.h"
#include "ortep/graph.h"

// As a node of the message that is being written. UNSUPPORTED for attributes
// that cannot be read or written.
rabbet_status_t rabbet_ort_write_node(const rabbet_ort_graph_t* graph,
                                      const rabbet_ort_node_t* node,
                                      rabbet_strbuf_t* out);
// Fields of an attribute's value, of the kind that the attribute has.
rabbet_status_t rabbet_ort_write_attribute(const OrtOpAttr* attribute,
                                           const char* name,
                                           rabbet_strbuf_t* out);
// The bytes of an attribute's value, with a NUL behind them; the caller frees
// with rabbet_free and the system's allocator.
rabbet_status_t rabbet_ort_read_attribute(const OrtOpAttr* attribute,
                                          OrtOpAttrType type, void** out_data,
                                          size_t* out_size);
// As field `field`; without the data if `has_data` is false. `name` may be
// NULL.
rabbet_status_t rabbet_ort_write_tensor(const OrtValue* value, const char* name,
                                        bool has_data, uint32_t field,
                                        rabbet_strbuf_t* out);
// As field `field`. No name is written of dimensions with an extent.
void rabbet_ort_write_value(const char* name, ONNXTensorElementDataType type,
                            const rabbet_dims_t* dims,
                            const char* const* dim_names, uint32_t field,
                            rabbet_strbuf_t* out);

#endif  // RABBET_SRC_ORTEP_WRITE_H_
